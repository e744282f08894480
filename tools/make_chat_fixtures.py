"""Writes tests/chat/golden/templates.json: what transformers renders for templates that use every construct we know of.

Run with the reference environment: python tools/make_chat_fixtures.py. The versions used are in the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
import transformers

TEMPLATES = {
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "trimming": (
        "{%- if messages[0].role == 'system' %}\n    {%- set system = messages[0].content | trim %}\n"
        "    {%- set rest = messages[1:] %}\n{%- else %}\n    {%- set rest = messages %}\n{%- endif %}\n"
        "{{ bos_token }}\n    {% if system is defined %}\n[SYSTEM]{{ system }}[/SYSTEM]\n    {% endif %}\n"
        "{% for message in rest %}\n    {% if message.role == 'user' %}\n[INST] {{ message.content | trim }} [/INST]"
        "    {%+ else %}\n{{ ' ' + message.content | trim + ' ' + eos_token }}\n    {% endif %}\n{% endfor %}\n"
    ),
    "namespaces": (
        "{% set ns = namespace(users=0, last='') %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.users = ns.users + 1 %}{% set ns.last = m.content %}{% endif %}{% endfor %}"
        "{{ ns.users }} {{ ns.last | upper }} {{ messages | map(attribute='role') | join(', ') }} "
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages[-1]['content'][:3] }}"
    ),
    "loop control": (
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index0 }}/{{ loop.length }}:"
        "{{ loop.previtem.role }}->{{ m.role }}{% if loop.index == 3 %}{% break %}{% endif %}"
        "{{ ', ' if not loop.last }}{% else %}none{% endfor %}"
    ),
    "tools": (
        "{% if tools %}TOOLS {{ tools | tojson }}\n{% for tool in tools %}{{ tool.function | tojson(indent=2) }}\n"
        "{{ tool.function.parameters | tojson(separators=(',', ':'), sort_keys=true) }}\n{% endfor %}{% endif %}"
        "{% for m in messages %}{{ m.role }}: {% if m.tool_calls %}{% for call in m.tool_calls %}"
        "<call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</call>"
        "{% for key, value in call.function.arguments.items() %}{{ key ~ '=' ~ value }};{% endfor %}{% endfor %}"
        "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
    ),
    "macros": (
        "{% macro turn(role, text='?') -%}<{{ role }}>{{ text | replace('<', '&lt;') }}{{ caller() if caller }}"
        "</{{ role }}>{%- endmacro %}{% for m in messages %}{{ turn(m.role, m.content) }}\n{% endfor %}"
        "{% call turn('end') %}!{% endcall %}{% set block %}a{{ 1 + 1 }}b{% endset %}"
        "{{ block | indent(2, first=true) }}"
    ),
    "generation": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}"
        "{% endgeneration %}{% else %}[{{ m.content }}]{% endif %}{% endfor %}"
    ),
    "variables": (
        "{{ 'thinking' if enable_thinking is defined and enable_thinking else 'plain' }} "
        "{{ date_string if date_string is defined else 'no date' }} {{ documents is none }} {{ tools is none }} "
        "{{ missing is defined }}{{ missing }}"
    ),
    "strings": (
        "{% for m in messages %}{{ '%s|%5.2f' % (m.role, 1.5) }} {{ '{0:>9}|{1}'.format(m.role, m.content) }} "
        "{{ m.content.split(' ')[0].strip() }} {{ m.content.startswith('H') }} {{ 'x' * 3 }} {{ m.content | length }} "
        "{{ m.content.replace('o', '00') }} {{ '-'.join([m.role, 'z']) }} {{ m.content is string }}\n{% endfor %}"
        "{{ [1, 2] + [3] }} {{ {'a': 1}.get('b', 'none') }} {{ 7 // 2 }} {{ 2 ** 10 }} {{ -7 % 3 }} {{ (1, 'a') }} "
        "{{ 'a' in 'abc' }} {{ messages[0] is mapping }} {{ [3, 1, 2] | sort | last }} {{ dict(a=1).items() | list }}"
    ),
    "refusal": "{% if messages[0].role == 'system' %}\n{{ raise_exception('System role not supported') }}{% endif %}ok",
}
USER = {"role": "user", "content": 'Hello there, "you" <b>é 😀</b>'}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "short": [USER],
    "turns": [USER, {"role": "assistant", "content": " Hi! \n"}, {"role": "user", "content": "What is 2+2?\n\n"}],
    "system": [{"role": "system", "content": "Be brief. "}, USER],
}
CALL = {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}
CONVERSATIONS["calls"] = [
    *CONVERSATIONS["system"],
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"degrees": 21.5}'},
]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of a city & country"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather of today's <city>", "parameters": PARAMETERS},
    }
]
VARIABLES: list[dict[str, Any]] = [{}, {"enable_thinking": True, "date_string": "26 Jul 2024"}]


def main() -> None:
    """Renders every template with every conversation, with and without tools, prompt and variables."""
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("--out", type=Path, default=root / "tests" / "chat" / "golden" / "templates.json")
    out = parser.parse_args().out
    vocabulary = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "</s>": 1, "?": 2}, unk_token="?"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, bos_token="<s>", eos_token="</s>")
    cases = []
    for template_name, template in TEMPLATES.items():
        for conversation_name, messages in CONVERSATIONS.items():
            for with_tools, prompt, variables in [(False, True, VARIABLES[0]), (True, False, VARIABLES[1])]:
                tools = TOOLS if with_tools else None
                case: dict[str, Any] = {"template": template_name, "conversation": conversation_name}
                case.update(tools=with_tools, add_generation_prompt=prompt, variables=variables)
                try:
                    case["text"] = tokenizer.apply_chat_template(
                        messages,
                        chat_template=template,
                        tools=tools,
                        add_generation_prompt=prompt,
                        tokenize=False,
                        **variables,
                    )
                except jinja2.TemplateError as error:
                    case["error"] = str(error)
                cases.append(case)
    versions = {module.__name__: module.__version__ for module in (transformers, jinja2)}
    content = {
        "made_with": versions,
        "templates": TEMPLATES,
        "conversations": CONVERSATIONS,
        "tools": TOOLS,
        "cases": cases,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{out}: {len(cases)} cases")


if __name__ == "__main__":
    main()
