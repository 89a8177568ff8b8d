#!/usr/bin/env python3
"""Makes tests/data/chat_templates: chat templates like those of each family, and their rendering by Transformers.

usage: make_chat_templates.py [FOLDER]     needs: pip install transformers==5.23.0 jinja2==3.1.6

FAMILY.jinja is a template written for these tests, in the style of a family's own templates. renders.json has, for each, the
texts of a few conversations; constructs.json the texts of small templates, one construct each. A case is {"template" or
"family", "variables", "text" or "error": true, "answers": character ranges that {% generation %} marks}. tokens.json
has ids by apply_chat_template on tokenizers of tests/data/tokenizers, and for the family "marked" the mask of answers;
conversations that a template refuses are left out.
"""
import json
import pathlib
import sys

from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

FAMILIES = {
    "chatml": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "zephyr": """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
""",
    "llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- The roles must alternate. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
""",
    "llama3": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if fixed_date is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message is taken out, so that it can be placed. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to the following functions.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call.\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "phi3": """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "qwen25": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nReturn a json object inside <tool_call></tool_call>:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}{%- if not ns.is_first %}{{'<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments'] | tojson + '\\n' + '```'}}{%- set ns.is_first = true -%}{%- else %}{{'\\n' + tool['function']['name']}}{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{'\\n<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>'}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜tool▁outputs▁end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜>'}}{% endif %}""",
    "marked": """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {{- message.content + '<|im_end|>' }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "macros": """{%- macro type_of(spec, level=0) -%}
    {%- if spec.type == "array" -%}
        {{- type_of(spec['items'], level + 1) ~ "[]" -}}
    {%- elif spec.type == "object" -%}
        { {%- for name, one in spec.properties.items() | sort -%}
            {{- name }}{% if name not in (spec.required or []) %}?{% endif %}: {{ type_of(one, level + 1) -}}
            {%- if not loop.last %}, {% endif -%}
        {%- endfor -%} }
    {%- else -%}
        {{- {"string": "text", "integer": "int"}.get(spec.type, "any") -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro turn(message) %}
{%- set role = message.role | upper %}
[{{ role }}]
{%- if message.content is string %} {{ message.content | trim }}
{%- else %}{% for part in message.content or [] %} {{ part.text | default('(' ~ part.type ~ ')') }}{% endfor %}
{%- endif %}
{% endmacro -%}
{%- for tool in tools or [] %}
{{ loop.index }}/{{ loop.length }} {{ tool.function.name }}({{ type_of(tool.function.parameters) }})
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {{- turn(message) }}
{%- endfor %}
{%- set footer %}
  {{ messages | map(attribute='role') | unique | join(', ') }}
{%- endset %}
{{- footer | trim }}
""",
}

TOOLS = [{"type": "function", "function": {"name": "tide", "description": "Height of the \"tide\" — in m", "parameters": {
    "type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "harbour <b> & 'quay'"},
        "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"type": "string", "enum": ["m", "ft"]}}}}},
    {"type": "function", "function": {"name": "bell", "description": "", "parameters": {"type": "object", "properties": {}}}}]

CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "tide", "arguments": {"place": "Brême", "days": [1, 2.5, -3e-7, True, None]}}}]}

CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "user", "content": "  What is 2 + 2?\n"}, {"role": "assistant", "content": " It's 4. \n"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"},
     {"role": "user", "content": "Ünïcode 🙂 \t{{ x }} {% y %}"}, {"role": "assistant", "content": "世界\n\nend"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"}, {"role": "user", "content": "c"},
     {"role": "assistant", "content": "<think>\nso\n</think>\n\nd"}],
    [{"role": "user", "content": "How high is the tide?"}, CALL, {"role": "tool", "content": "3.5", "name": "tide", "tool_call_id": "abcdefghi"},
     {"role": "assistant", "content": "3.5 m"}],
    [{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}],
    [{"role": "user", "content": [{"type": "text", "text": " parts "}, {"type": "image"}]}, {"role": "assistant", "content": [{"type": "text", "text": "seen"}]}],
    [],
]

V = {"messages": CHATS[2], "n": 7, "x": 2.5, "big": 1e22, "tiny": 1e-7, "t": True, "f": False, "none": None, "s": " Héllo wörld ", "e": "",
     "words": ["b", "A", "c", "b"], "nums": [3, 1, 2], "d": {"k": "v", "n": {"a": [1, 2, {"z": None}]}, "items": 5},
     "lines": "one\ntwo\r\nthree\n", "quotes": "it's \"q\" \\ \x07\u00a0\u200b"}

CONSTRUCTS = [
    "{{ x }} {{ big }} {{ tiny }} {{ n }} {{ t }} {{ f }} {{ none }} {{ missing }} {{ 1.0 }} {{ -0.0 }} {{ 100000000000000000.0 }} {{ 0.1 + 0.2 }}",
    "{{ d }} {{ words }} {{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }} {{ quotes }} {{ [quotes] }} {{ [x, big, t, none] }}",
    "{{ d | tojson }}{{ d | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=1) }}{{ quotes | tojson }}{{ '<>&' | tojson }}",
    "{{ d | tojson(separators=(',', ':')) }}{{ s | tojson(ensure_ascii=true) }}{{ '🙂' | tojson(ensure_ascii=true) }}{{ {'b':1,'a':2} | tojson(sort_keys=true) }}",
    "{{ [1.5, 1e100, 5e-324, 123456789012345678] | tojson }} {{ (1, 2) | tojson }}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ 4503599627370497.0 // 1 }} {{ 1.0 // -0.1 }} {{ -4.0 % 2.0 }} {{ -0.0 // 1 }} {{ -0.0 % -3 }} {{ 1e300 // 7 }} {{ -7.5 // 2 }}",
    "{{ 'a' * 3 }} {{ [1] * 2 + [2] }} {{ 'a' ~ 1 ~ none ~ t ~ x }} {{ 1 + t }} {{ 'a' + 'b' }}",
    "{{ 1 == 1.0 }} {{ t == 1 }} {{ 'a' == 1 }} {{ none == f }} {{ missing == other }} {{ missing == none }} {{ [1] == [1] }} {{ (1,) == [1] }} {{ {'a':1} == {'a':1.0} }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 <= 1 }} {{ 2 >= 3 }} {{ 'é' > 'z' }}",
    "{{ 'l' in s }} {{ 'k' in d }} {{ 3 in nums }} {{ 3 not in nums }} {{ not 3 in nums }} {{ 'x' in missing }} {{ '' in s }}",
    "{{ t and 'y' or 'z' }} {{ e or 'dflt' }} {{ f and missing.x }} {{ not e }} {{ 'a' if e else 'b' }} {{ 'a' if e }}|{{ 'a' if t else 'b' if f else 'c' }}",
    "{{ s[1] }}{{ s[-2] }}{{ s[1:6] }}{{ s[::-1] }}{{ s[:-1] }}{{ s[::2] }}{{ s[5:1:-1] }}{{ s[100:] }}{{ s[-100:3] }}|{{ nums[1:] }}{{ nums[::-1] }}{{ nums[:0] }}{{ nums[-1] }}{{ nums[5] }}",
    "{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ s.upper() }}|{{ s.lower() }}|{{ s.title() }}|{{ 'héLLO wORLD'.capitalize() }}",
    "{{ 'a,b,,c'.split(',') }}{{ 'a,b,,c'.split(',', 1) }}{{ ' a  b c '.split() }}{{ ' a  b c '.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ lines.splitlines() }}{{ ''.split(',') }}{{ ''.split() }}",
    "{{ 'abcabc'.replace('b', 'XX') }}{{ 'abcabc'.replace('b', 'X', 1) }}{{ 'ab'.replace('', '-') }}{{ ', '.join(words) }}{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}{{ 'aXbXc'.rfind('X') }}{{ 'äbc'.index('b') }}{{ 'aaa'.count('a') }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ ''.isalpha() }}{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}",
    "{{ d.items() | list }}{{ d['items'] }}{{ d.k }}{{ d['k'] }}{{ d.get('k') }}{{ d.get('zz') }}{{ d.get('zz', 'no') }}{{ d.keys() | list }}{{ d.n.a[2].z }}{{ d.values() | list }}{{ d | items | list }}",
    "{{ s | trim }}|{{ 'xax' | trim('x') }}|{{ s | length }}{{ words | count }}{{ d | length }}|{{ words | join }}|{{ words | join('-') }}|{{ messages | join(',', attribute='role') }}",
    "{{ missing | default('x') }}{{ e | default('x') }}{{ e | default('x', true) }}{{ none | d('x') }}{{ missing | d }}|{{ words | first }}{{ words | last }}{{ [] | first }}{{ 'abc' | first }}{{ s | upper }}{{ 5 | string + '!' }}",
    "{{ '12' | int }}{{ ' -3 ' | int }}{{ '3.9' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ 2.9 | int }}{{ '2.5' | float }}{{ 'x' | float }}{{ t | int }}{{ -3 | abs }}{{ 2.5 | round }}{{ 3.14159 | round(2) }}{{ 7 | round }}",
    "{{ words | sort }}{{ nums | sort }}{{ nums | sort(reverse=true) }}{{ words | sort(case_sensitive=true) }}{{ words | unique | list }}{{ nums | min }}{{ nums | max }}{{ nums | sum }}{{ d | dictsort }}{{ words | reverse | list }}{{ 'abc' | reverse }}",
    "{{ messages | map(attribute='role') | list }}{{ words | map('upper') | list }}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}{{ messages | rejectattr('role', '==', 'user') | list | length }}",
    "{{ nums | select('odd') | list }}{{ nums | reject('gt', 1) | list }}{{ [0, 1, '', 'a'] | select | list }}{{ messages | selectattr('zz') | list }}{{ messages | selectattr('role', 'in', ['system', 'user']) | list | length }}{{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}{{ [{}] | map(attribute='a', default='-') | list }}",
    "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'aXb' | replace('X', '-') }}|{{ 'abc' | list }}{{ 'aBc def' | capitalize }}",
    "{{ x is number }}{{ t is boolean }}{{ t is integer }}{{ 1 is integer }}{{ x is float }}{{ s is string }}{{ d is mapping }}{{ words is sequence }}{{ s is iterable }}{{ n is iterable }}{{ none is none }}{{ missing is defined }}{{ missing is undefined }}{{ s is defined }}{{ t is true }}{{ f is false }}{{ 1 is true }}",
    "{{ 3 is odd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 1 is equalto 1 }}{{ 1 is eq 2 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 'a' is in 'abc' }}{{ none is not none }}{{ x is not defined }}{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ range is callable }}{{ t is sameas true }}{{ 1 is sameas true }}",
    "{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.depth }};{% endfor %}",
    "{% for w in words if w != 'A' %}{{ loop.index }}{{ w }}{% if not loop.last %},{% endif %}{% endfor %}{% for w in [] %}x{% else %}empty{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor %}",
    "{% for c in 'añ🙂' %}[{{ c }}]{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(2, 8, 3) %}{{ i }}{% endfor %}{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{% for z in missing %}z{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% for j in range(9) %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %}{% endfor %}",
    "{% set a = 1 %}{% for i in range(3) %}{{ a }}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}{% if t %}{% set a = 5 %}{% endif %}{{ a }}{% set p, q = 1, 2 %}{{ p }}{{ q }}{% set tup = 1, 2 %}{{ tup }}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.zz }}{% set ns.zz = [1] %}{{ ns.zz }}{% set m = namespace() %}{% set m.q = 1 %}{{ m.q }}{% set nd = namespace({'u': 3}) %}{{ nd.u }}",
    "{% macro m(a, b=2, c='z') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=5, a=4) }}{{ m() }}{{ m('q') | upper }}{{ m(1)[1:3] }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{{ w }}{% set g = 9 %}{{ g }}{% endmacro %}{% for w in words %}{{ m() }}{% endfor %}{{ g }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% set b %}  block {{ n }} {% endset %}[{{ b }}]{% set b2 | trim | upper %}  block {{ n }} {% endset %}[{{ b2 }}]",
    "a\n{% if t %}\nb\n{% endif %}\nc\n  {% if t %}  \n  d\n  {% endif %}  \ne\n",
    "a  {%- if t -%}  b  {%- endif -%}  c {{- ' d ' -}} e\n  {%+ if t %}f{% endif +%}\ng\n",
    "x {# comment #}\n  {# alone #}\ny {#- trims -#} z\n{{ n }}\n{{ n }}\n\n{% set q = 1 %}\n\nw\n\n",
    "{% raw %}{{ not }} {% if %}{% endraw %}|  {%- raw -%}  r  {%- endraw -%}  |\n{% raw %}\nq\n{% endraw %}\nz",
    "{{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}} }}{{ \"it's\" }}{{ 'tab\\tnl\\nq\\'u\\u00e9\\x41' }}{{ 'a' 'b' }}{{ '%}' }}{% if '%}' == '%}' %}y{% endif %}",
    "{{ (1 + 2) * 3 }}{{ 1 + 2 * 3 }}{{ -3 | abs }}{{ 'a' ~ 'b' | upper }}{{ not t == f }}{{ 1 if t else 2 + 3 }}{{ 5 - 2 - 1 }}{{ 2 * 3 % 4 }}{{ 5 - -3 }}", "{{ - - 3 }}", "{{ 1 ~ 2 + 3 }}", "{{ 1 + 2 ~ 3 }}",
    "{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}{{ [1, 2, 3,] }}{{ {'a': 1,} }}{{ [[1, [2]], 3][0][1][0] }}{{ words.index('c') }}{{ words.count('b') }}{{ nums.0 }}{{ 1_000 }}{{ 1.5e3 }}",
    "{{ d['n']['a'][0] }}", "{{ d.n.a.1 }}", "{{ missing is defined and missing.x }}{{ d.zz is defined }}{{ d.zz.yy is defined if f else 'ok' }}", "{{ d.zz.yy is defined }}", "{{ none.foo is defined }}{{ s.nope is defined }}{{ d.items is defined }}",
    "{{ missing.x }}", "{{ missing.x.y }}", "{{ d.zz.yy }}", "{{ 1 + 'a' }}", "{{ 'a' + none }}", "{{ none | length }}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ missing() }}", "{{ n() }}", "{{ 'a' < 1 }}", "{{ missing < 1 }}", "{{ raise_exception('no') }}", "{{ words.append('x') }}", "{{ missing | tojson }}", "{{ 'x' in none }}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{{ s.nope() }}", "{% set n.x = 1 %}", "{{ 'a'.split('') }}", "{{ 'abc'.index('z') }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{{ words | sort(attribute='x') }}",
    "{% if t %}", "{% endif %}", "{{ }}", "{{ 1 + }}", "{% for x %}{% endfor %}", "{% if t %}{% else %}{% elif f %}{% endif %}", "{{ 'a }}", "{% set %}", "{{ a b }}", "{# x", "{{ (1 }}", "{% for x in words %}{% endif %}", "{{ [1, 2 }}",
    "{% if messages | selectattr('role', 'equalto', 'nobody') %}T{% endif %}{% set g = nums | map('string') %}{{ g | join(',') }}",
    "{% for k in d.keys() %}{{ k }}{% endfor %}{{ d.items() }}{{ d.keys() }}{{ d.values() }}{{ [d.keys(), ({}.items(),)] }}",
    "{{ d.keys() | length }}{{ d.items() | list }}{{ d.items()[0] }}{{ 'k' in d.keys() }}{{ 5 in d.values() }}{{ d.keys() | first }}{{ d.keys() | last }}",
    "{{ {}.keys() is sequence }}{{ d.keys() is iterable }}{{ 'y' if {}.items() else 'n' }}{{ d.keys() == d.items() }}",
    "{{ range(3)[1] }}{{ range(5)[1:3] | list }}{{ range(3) == range(3) }}{{ range(3) == [0, 1, 2] }}{{ range(3) is sequence }}{{ 2 in range(3) }}",
    "{{ range(3) | length }}{{ 'e' if not range(0) }}{{ range(9) | last }}{{ range(3) | reverse | list }}{{ range(9)[::-2] | list }}{{ range(3)[7] }}",
    "{{ (nums | select('odd'))[0] }}|{{ (nums | reject('odd')) is iterable }}{{ (nums | unique) is sequence }}",
    "{{ nums | reverse | list }}{{ nums | select | reverse }}{{ nums | sort | reverse | first }}{{ 'abc' | reverse }}{{ (nums | reverse) is sequence }}",
    "{{ d | items | list }}{% for k, v in d | items %}{{ k }}{% endfor %}{{ 'x' if missing | items }}{{ words | unique | join }}",
    "{{ (words | unique) == (words | unique) }}{{ nums | map('string') | map('upper') | list }}{{ 3 in (nums | select) }}",
    "{{ ['b'] is lower }}{{ 5 is lower }}{{ 'B1' is upper }}{{ none is upper }}{{ none is lower }}{{ missing is lower }}",
    "{{ +t }}{{ -t }}{{ +n }}{{ +x }}{{ 'nan' | int }}{{ '1e400' | int(3) }}{{ 'inf' | int(4) }}{{ none | int(5) }}{{ [] | float(6.5) }}",
    "{{ nums | map('string') | length }}", "{{ d.keys()[:1] }}", "{{ (nums | map('string'))[:1] }}", "{{ nums | select | last }}", "{{ (nums | select) + [1] }}", "{{ range(3) + [1] }}",
    "{{ nums | map('string') | tojson }}", "{{ range(2) | tojson }}", "{{ d.keys() | tojson }}", "{{ d.items() + [1] }}",
    "{{ missing | int }}", "{{ missing | float }}", "{{ [1] in {} }}", "{{ 5 | indent }}", "{{ missing | indent }}", "{{ +'a' }}",
    "{{ +[1] }}", "{{ +missing }}", "{{ -missing }}", "{{ 1e999 | int }}",
    "{% for i in nums %}{% continue %}{% else %}E{% endfor %}{% for i in nums %}{{ i }}{% break %}{% else %}E{% endfor %}",
    "{% for i in nums %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% else %}E{% endfor %}{% for i in nums %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}",
    "{{ none | selectattr('c') | list }}{{ 0 | map('upper') | list }}{{ false | reject | list }}{% for m in none | map(attribute='c') %}{% endfor %}",
    "{{ (1.5 | map('first')) is iterable }}{% if [none] | map('length') %}T{% endif %}{{ [{}] | unique is iterable }}{{ 5 | items is iterable }}",
    "{{ [1, [2]] | unique | first }}{{ 1 in ([1, none] | map('abs')) }}{{ [] | map | list }}{{ [] | selectattr | list }}{% set g = 5 | items %}",
    "{{ 2.5 is even }}{{ 3.0 is odd }}{{ -1.0 is odd }}{{ -3 is odd }}{{ 7.5 is divisibleby(2.5) }}{{ 7 is divisibleby 2.5 }}{{ true is odd }}{{ -4 is divisibleby(-1) }}",
    "{{ 7 is divisibleby(0) }}", "{{ 7 is divisibleby(0.0) }}", "{{ '7' is odd }}", "{{ none is even }}", "{{ missing is even }}", "{{ 7 is divisibleby }}",
    "{{ [none] | map('length') | list }}", "{{ 1.5 | map('first') | list }}", "{{ 5 | items | list }}", "{{ 3 in ([1, none] | map('abs')) }}", "{{ nums | map | list }}",
    "{{ nums | selectattr | list }}", "{{ [none, 1] | map('abs') | first }}", "{{ [[2]] | unique | list }}", "{{ 5 | unique | list }}",
    "{{ d.items() | unique | list }}", "{{ [1] in d.keys() }}", "{{ d.keys() in {} }}", "{{ ([1],) in {} }}",
    "{{ 10.0 ** 400 }}", "{{ 1.5 ** 1000000000 }}", "{{ 1e200 ** 2 }}", "{{ 0 ** -1 }}", "{{ 0.0 ** -1 }}", "{{ false ** -0.5 }}",
    "{{ 5 / 0 }}", "{{ 5 // 0.0 }}", "{{ 5.0 % 0 }}", "{{ 0 / 0.0 }}", "{{ big // 0 }}",
    "{% set i = big ** 14 * 10 %}{{ 2 ** -1074 }} {{ 2 ** -2000 }} {{ (-2) ** -3 }} {{ (-8.0) ** 3 }} {{ 0.0 ** 0 }} {{ 0 ** 0.5 }} {{ 0.0 ** -i }} {{ i ** 2 }} {{ (-i) ** 0.5 }}",
    "{% set i = big ** 14 * 10 %}{{ 1e308 * 10 }} {{ 1e308 // 1e-10 }} {{ 5 % i }} {{ -5 % i }} {{ i // 2 }} {{ i - i }} {{ 1e-400 }} {{ 5 < i }} {{ -5 < -i }}",
    "{{ 9007199254740993 == 9007199254740992.0 }} {{ 9007199254740993 > 9007199254740992.0 }} {{ 9007199254740993 <= 9007199254740992.0 }}",
    "{{ 9223372036854775807 == 9223372036854775808.0 }} {{ 9223372036854775807 < 9223372036854775808.0 }} {{ -9223372036854775807 > -9223372036854775808.0 }}",
    "{{ -9223372036854775807 - 1 == -9223372036854775808.0 }} {{ 3 < 3.5 }} {{ -3 > -3.5 }} {{ 3 >= 2.5 }} {{ true == 1.0 }}",
    "{{ [9007199254740993] == [9007199254740992.0] }} {{ 9007199254740993 in [9007199254740992.0] }} {{ [9007199254740992.0, 9007199254740993] | max }}",
    "{{ [9007199254740993, 9007199254740992.0] | sort }} {{ [9007199254740993, 9007199254740992.0] | unique | list }} {{ 9007199254740993 is eq 9007199254740992.0 }}",
    "{% set i = big ** 14 * 10 %}{% set v = i - i %}{{ v == v }} {{ v != 1 }} {{ v < 1 }} {{ 1 >= v }} {{ 1 <= v }} {{ v >= 1.5 }}",
    "{{ 9223372036854775807 / 3 }} {{ 9007199254740993 / 1 }} {{ -9223372036854775807 / 7 }} {{ 1 / 9223372036854775807 }} {{ 0 / -3 }} {{ 0 / 3 }} {{ 6148914691236517205 / 3 }}",
    "{{ '1e400' | float }} {{ '-1e400' | float }} {{ '1e-400' | float(5) }} {{ '-1e-400' | float }} {{ '1e400' | int(7) }} {{ 'inf' | int(7) }} {{ '1e-400' | int(7) }}",
    "{{ '+inf' | float }} {{ 'Infinity' | float }} {{ 'nan' | float }} {{ 'nan(1)' | float(5) }} {{ 'nan' | int(7) }} {{ '+-5' | int(7) }} {{ '+-5' | float(7) }} {{ '+' | float(7) }}",
    "{{ '\u0663' | int }} {{ '\u0663.5' | float }} {{ '1\u0663' | int }} {{ '\u0663e\u0662' | int }} {{ '\uff17' | float }} {{ '\U0001d7da' | int }} {{ '\u0967\u0968' | int }}",
    "{{ '\u00b2' | int(7) }} {{ '\u22125' | int(7) }} {{ '\u00a05\u2003' | int }} {{ '\u001c5' | int(7) }} {{ '5\u001f' | float(7) }} {{ '\u0085 5\n' | int }} {{ '1\u00a02' | int(7) }}",
    "{{ ('0' * 5000) | int(7) }} {{ ('9' * 5000) | int(7) }} {{ ('9' * 40) | float }} {{ '-9223372036854775808' | int }}",
    "{{ '1.' | float }} {{ '.5' | float }} {{ '.' | float(7) }} {{ '1e' | float(7) }} {{ '0x1p3' | float(7) }} {{ ' 1.9 ' | int }} {{ '' | int(7) }} {{ '- 5' | int(7) }}",
    "{{ 1e308 * 10 | int }}", "{{ (1e308 * 10) | int(7) }}", "{{ ('nan' | float) | int(7) }} {{ -2.5 | int }} {{ true | int }} {{ true | float }} {{ none | float(7) }}",
    "{{ -0.0 | abs }} {{ -1e308 | abs }} {{ true | abs }} {{ 2.5 | round }} {{ -0.4 | round }} {{ 2.675 | round(2) }} {{ ('nan' | float) | round }} {{ true | round }}",
    "{{ [1, 2.5, true] | sum }} {{ [1e308, 1e308] | sum }} {{ [9007199254740993, 0.0] | sum }} {{ [0.0, 9007199254740993] | sum }} {{ [-0.0] | sum }} {{ [] | sum(start=2.5) }}",
    "{{ ['a'] | sum }}", "{{ none | round }}", "{{ 'a' | abs }}", "{{ 'a' ** 2 }}", "{{ none // 1 }}", "{{ 7 % none }}",
]


def render(template, variables):
    compiled = chat_template_utils._compile_jinja_template(template)
    return compiled.render(**variables)


def case_of(template, variables):
    try:
        return {"text": render(template, variables)}
    except Exception:  # jinja2 raises its own exceptions and Python's
        return {"error": True}


SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def renders():
    out = []
    for family in FAMILIES:
        for chat in range(len(CHATS)):
            for tools in (None, TOOLS):
                for prompt in (False, True):
                    variables = {"messages": CHATS[chat], "tools": tools, "documents": None, "add_generation_prompt": prompt, **SPECIAL}
                    out.append({"family": family, "chat": chat, "tools": tools is not None, "prompt": prompt,
                                **case_of(FAMILIES[family], variables)})
    return out


SPECIAL_WORDS = {"bos_token": ["<s>", "<|begin_of_text|>", "<|endoftext|>", "<|im_start|>"],
                 "eos_token": ["</s>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"]}


def tokens(folder):
    out = []
    for name, families in {"gpt2": ["chatml", "marked", "llama3"], "llama2": ["llama2", "mistral", "zephyr", "gemma", "marked"],
                           "llama3": ["llama3", "qwen25", "marked"], "qwen2": ["chatml", "qwen25", "qwen3", "marked", "phi3", "deepseek"]}.items():
        file = str(folder / "tokenizers" / name / "tokenizer.json")
        known = PreTrainedTokenizerFast(tokenizer_file=file).get_vocab()
        special = {key: next(word for word in words if word in known) for key, words in SPECIAL_WORDS.items()}
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=file, **special)
        for family in families:
            for chat in range(len(CHATS) - 1):
                case = {"tokenizer": name, "family": family, "chat": chat, "special": special}
                try:
                    got = tokenizer.apply_chat_template(CHATS[chat], chat_template=FAMILIES[family], return_dict=True,
                                                        return_assistant_tokens_mask=family == "marked")
                except Exception:
                    continue
                case["ids"] = got["input_ids"]
                if family == "marked":
                    case["answers"] = got["assistant_masks"]
                out.append(case)
    return out


def main():
    data = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else data / "chat_templates"
    folder.mkdir(parents=True, exist_ok=True)
    for family, template in FAMILIES.items():
        (folder / f"{family}.jinja").write_text(template, encoding="utf-8")

    def write(name, value):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    write("renders.json", {"chats": CHATS, "tools": TOOLS, "special": SPECIAL, "cases": renders()})
    write("constructs.json", {"variables": V, "cases": [{"template": t, **case_of(t, V)} for t in CONSTRUCTS]})
    write("tokens.json", {"chats": CHATS, "cases": tokens(data)})


if __name__ == "__main__":
    main()
