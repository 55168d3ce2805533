"""All choices of one job (`n`): they share the prompt, and each ends by itself; a failure or a cancel ends them all."""

from __future__ import annotations

from lsm.engine.outputs import Job
from lsm.engine.ports import NewInstance
from lsm.engine.request import Request
from lsm.machines.request import REQUEST


class Family:
    """The lead, `members[0]`, decodes the prompt; the others wait for it."""

    def __init__(self, job: Job, new_instance: NewInstance) -> None:
        self.id = job.id
        self.options = job.options
        subjects = [job.id, *(f"{job.id}/{index}" for index in range(1, job.options.n))]
        self.members = tuple(Request(job, index, new_instance(REQUEST, subject)) for index, subject in enumerate(subjects))
        self.n_live = len(self.members)
        self.is_told = False  # of a failure or a cancel: nothing more is heard of any choice

    @property
    def lead(self) -> Request:
        return self.members[0]

    def close(self) -> None:
        for request in self.members:
            request.close()
