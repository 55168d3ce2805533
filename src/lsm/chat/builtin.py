"""Chat templates for models whose file has none.

A model asked in a form that it was not trained on answers nonsense, so the architecture chooses where it decides the form alone;
everything else gets ChatML, as with llama-server.
"""

from __future__ import annotations

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

# Gemma has no system turn: what the system says opens the first turn of the user.
GEMMA = """\
{{- bos_token }}
{%- set preamble = '' %}
{%- if messages[0].role == 'system' %}
{%- set preamble = messages[0].content + '\\n\\n' %}
{%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
{%- if message.role not in ('user', 'assistant') %}
{{- raise_exception("Gemma knows the roles user and assistant, and system in the first message; found '" + message.role + "'") }}
{%- endif %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' }}
{{- preamble if loop.first else '' }}
{{- message.content | trim }}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}"""

TEMPLATES = {"chatml": CHATML, "gemma": GEMMA}
BY_ARCHITECTURE = {"gemma": "gemma", "gemma2": "gemma", "gemma3": "gemma", "gemma3n": "gemma"}
FALLBACK = "chatml"


def name_for(architecture: str) -> str:
    """The built-in template of a model whose file has none."""
    return BY_ARCHITECTURE.get(architecture, FALLBACK)
