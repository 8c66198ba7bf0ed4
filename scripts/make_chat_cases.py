"""Records how transformers renders chats: the texts by templates of six model families, and which tokens are the
assistant's.

    pip install transformers==5.23.0 jinja2==3.1.6
    python3 scripts/make_chat_cases.py

Writes crates/text/tests/data/chats.json: a tokenizer of bytes, and for each template its text, the input chats and the
results: the text with and without the generation prompt, or the message with which the template refused the chat.
"""

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

OUT = Path(__file__).resolve().parent.parent / "crates/text/tests/data/chats.json"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

TEMPLATES = {
    "chatml": """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "llama3": """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" -%}
    {%- set system_message = messages[0]["content"] -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{{- bos_token -}}
{%- for message in loop_messages -%}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) -%}
        {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant") -}}
    {%- endif -%}
    {%- if message["role"] == "user" -%}
        {%- if loop.first and system_message is defined -%}
            {{- " [INST] " + system_message + "\\n\\n" + message["content"] + " [/INST]" -}}
        {%- else -%}
            {{- " [INST] " + message["content"] + " [/INST]" -}}
        {%- endif -%}
    {%- elif message["role"] == "assistant" -%}
        {{- " " + message["content"] + eos_token -}}
    {%- else -%}
        {{- raise_exception("Only user and assistant roles are supported") -}}
    {%- endif -%}
{%- endfor -%}
""",
    "gemma": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "phi": """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}\
{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}\
{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "qwen": """{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and ns.last == messages|length - 1 %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- if loop.index0 > ns.last %}
                {%- set content = '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content %}
            {%- endif %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
                {%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "marked": """{{ bos_token }}{% for message in messages %}
  {% if message.role == 'assistant' %}
    {{- 'A: ' }}{% generation %}
    {{ message.content + eos_token }}
    {%- endgeneration %}
{{ '|' }}
  {% else %}
{{ message.role | upper }}: {{ message.content.strip() }}
  {% endif %}
{% endfor %}
{% if add_generation_prompt %}A: {% endif %}""",
    "marked tightly": """{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}
    <a>  {%- generation -%}  {{ message.content }}{{ eos_token }}  {%- endgeneration -%}  </a>
  {%- else -%}
    <u>{{ message.content }}</u>
  {%- endif -%}
{%- endfor -%}""",
    "language": """{%- macro shown(value, level=1) -%}{{ '#' * level }} {{ value | tojson }}{%- endmacro -%}
{%- for message in messages %}
{%- if loop.previtem is defined and loop.previtem.role == message.role %}{% continue %}{% endif %}
{{ loop.index }}/{{ messages | length }} {{ shown(message, level=2) }}
{{ message.items() | list | length }} {{ message.get('name', 'nobody') }} {{ message['nothing'] }}|{{ tools }}|{{ true }}|{{ 1.5 }}|{{ 7 // 2 }}
{{ message | tojson(indent=2) }}
{{ message.content.startswith('H') }} {{ message.content[:3] }} {{ message.content[-1] }} {{ 'ell' in message.content }}
{{ message.content.replace('l', 'L').upper() if message.content else 'empty' }} {{ message.content | length }}
{% if loop.last %}{% break %}{% endif %}
{% endfor %}
{{ [1, 2, 3] | join('-') }} {{ ('a' ~ 1) }} {{ messages | map(attribute='role') | join(',') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{# a comment #}
{{ unk_token }}{{ eos_token }}
""",
}


def says(role, content, **more):
    # In alphabetical order, since Rust's serde_json sorts keys.
    return dict(sorted({"role": role, "content": content, **more}.items()))


SHORT = [says("user", "Hello there"), says("assistant", "Hi! \n"), says("user", " naïve café 日本語 👩‍👧 <b>'quoted'</b> ")]
CHATS = [
    [says("user", "Hello")],
    SHORT,
    [says("system", " Be brief. ")] + SHORT + [says("assistant", "Yes.")],
    [says("user", "a"), says("assistant", "<think>\nwell\n</think>\n\nb"), says("user", "c"), says("assistant", "<think>\nhm\n</think>\n\nd")],
    [says("user", "a"), says("user", "b")],
    [says("user", "Add 1 and 2"), says("assistant", "", tool_calls=[{"arguments": {"a": 1, "b": [2.5, None, True, "x\"é"]}, "name": "add"}])],
    [says("tool", "x")],
]


def tokenizer():
    """Every byte is a token, beside the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", *alphabet])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "<pad>", "</s>"])
    return made


def case(hf, name, chat):
    made = {"chat": chat}
    try:
        made["text"] = hf.apply_chat_template(chat, tokenize=False)
        made["prompt"] = hf.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        return {**made, "refused": str(error)}
    if "marked" in name:
        found = hf.apply_chat_template(chat, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        made |= {"ids": found["input_ids"], "learnt": found["assistant_masks"]}
    return made


def main():
    own = tokenizer()
    hf = PreTrainedTokenizerFast(tokenizer_object=own, **SPECIAL)
    out = {"tokenizer": json.loads(own.to_str()), "special": SPECIAL, "templates": []}
    for name, template in TEMPLATES.items():
        hf.chat_template = template
        cases = [case(hf, name, chat) for chat in CHATS]
        out["templates"].append({"name": name, "template": template, "cases": cases})
    OUT.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
