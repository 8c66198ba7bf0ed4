"""Measures how many tokens a second a text generation server gives to several concurrent clients.

    python3 scripts/serve/crowd.py HOST:PORT MODEL [--clients 1,8,32] [--tokens 64] [--turns 3] [--process PID]

Every client streams a greedy text for its own prompt, which must equal the text that it gets alone. Sizes take turns.
Prints the median of all turns, and the longest pause of a stream after its first piece. With the server's `--process`,
seconds are those of its processor time, for machines that others use.
"""

import argparse
import http.client
import json
import os
import statistics
import threading
import time

THINGS = "river mountain tensor garden bridge winter engine library planet bread island violin market forest letter window".split()
PROMPTS = [f"{begin} {thing}" for begin in ("Here is a short story about a", "Let me explain the word") for thing in THINGS]


def stream(address, model, prompt, tokens):
    """The text, its number of tokens, and when each piece came."""
    connection = http.client.HTTPConnection(address, timeout=600)
    asked = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(asked | {"stream_options": {"include_usage": True}}))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    text, used, times = "", 0, []
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        assert "error" not in event, event
        for choice in event["choices"]:
            text += choice["text"]
            times.append(time.monotonic())
        if event["usage"]:
            used = event["usage"]["completion_tokens"]
    connection.close()
    return text, used, times


def seconds_of(process):
    """Processor time of a process, or else the time of day."""
    if not process:
        return time.monotonic()
    fields = open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowd(address, model, prompts, tokens, process=None):
    found = [None] * len(prompts)

    def ask(number):
        found[number] = stream(address, model, prompts[number], tokens)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(len(prompts))]
    began = seconds_of(process)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = seconds_of(process) - began
    assert all(found), "a client failed"
    pause = max((b - a for _, _, times in found for a, b in zip(times, times[1:])), default=0)
    return [text for text, _, _ in found], sum(used for _, used, _ in found) / seconds, pause


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("model")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--process", type=int)
    args = parser.parse_args()
    sizes = [int(size) for size in args.clients.split(",")]
    assert max(sizes) <= len(PROMPTS), f"there are {len(PROMPTS)} prompts"
    stream(args.address, args.model, PROMPTS[0], 2)
    alone, rates, pauses, differ = {}, {size: [] for size in sizes}, dict.fromkeys(sizes, 0.0), 0
    for turn in range(args.turns):
        for size in sizes:
            # A single client uses another prompt each time.
            prompts = PROMPTS[:size] if size > 1 else [PROMPTS[turn % len(PROMPTS)]]
            texts, rate, pause = crowd(args.address, args.model, prompts, args.tokens, args.process)
            rates[size].append(rate)
            pauses[size] = max(pauses[size], pause)
            for prompt, text in zip(prompts, texts):
                if prompt not in alone:
                    alone[prompt] = stream(args.address, args.model, prompt, args.tokens)[0]
                differ += text != alone[prompt]
    one = statistics.median(rates[sizes[0]])
    for size in sizes:
        rate = statistics.median(rates[size])
        print(f"{size:3} clients: {rate:7.1f} tokens/s, {rate / one:5.2f} times those of {sizes[0]}; longest pause {pauses[size]:.2f} s")
    print(f"{differ} of {sum(sizes) * args.turns} texts differ from the ones written alone")


if __name__ == "__main__":
    main()
