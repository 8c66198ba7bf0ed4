"""JAX as a peer of `polygrad bench`: everything under jit, images as NHWC, a short hand-written Adam, as in its own examples; on a GPU with
--device cuda, where f32 products round their factors to TF32 only with --tf32."""

import os
import sys

from protocol import INPUT, TARGET, classes, device, noise, serve, threads, weights

DEVICE = device()
# JAX would fall back to the CPU, and take most of a card's memory at once.
os.environ["JAX_PLATFORMS"] = DEVICE
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# XLA uses one thread for each allowed core.
if DEVICE == "cpu":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads() :])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

if DEVICE != "cpu":
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if "--tf32" in sys.argv else "float32")


def inputs(shape):
    count = 1
    for extent in shape:
        count *= extent
    return noise(count, INPUT).reshape(shape)


class Weights:
    """Generates parameters in the common order of all peers, in the layout that XLA prefers."""

    def __init__(self):
        self.index = -1

    def take(self, shape, scales=False):
        self.index += 1
        return weights(self.index, shape, scales)

    def linear(self, inputs, outputs):
        return {"w": jnp.asarray(self.take((outputs, inputs)).T), "b": jnp.asarray(self.take((outputs,)))}

    def conv(self, inputs, outputs, size, bias=False):
        conv = {"w": jnp.asarray(self.take((outputs, inputs, size, size)).transpose(2, 3, 1, 0))}
        return conv | ({"b": jnp.asarray(self.take((outputs,)))} if bias else {})

    def norm(self, features):
        return {"w": jnp.asarray(self.take((features,), True)), "b": jnp.asarray(self.take((features,)))}


def linear(p, x):
    return x @ p["w"] + p["b"]


def cross_entropy(logits, target):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), target[:, None], 1).mean()


tree = jax.tree_util.tree_map


def sgd(params):
    return (), lambda g, state, p: (tree(lambda p, g: p - 0.01 * g, p, g), state)


def momentum(params):
    def update(g, state, p):
        state = tree(lambda m, g: 0.9 * m + g, state, g)
        return tree(lambda p, m: p - 0.01 * m, p, state), state

    return tree(jnp.zeros_like, params), update


def adam(params, decay=0.0):
    def update(g, state, p):
        m, v, t = state
        t = t + 1
        m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = tree(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        a, b = 1 / (1 - 0.9**t), 1 / (1 - 0.999**t)
        new = lambda p, m, v: p * (1 - 1e-3 * decay) - 1e-3 * (m * a) / (jnp.sqrt(v * b) + 1e-8)
        return tree(new, p, m, v), (m, v, t)

    return (tree(jnp.zeros_like, params), tree(jnp.zeros_like, params), jnp.zeros(())), update


def adamw(params):
    return adam(params, 0.01)


def training(params, optimizer, forward, x, rows, of, buffers=()):
    """`forward(params, x, buffers)` returns logits and new buffers."""
    target, x = jnp.asarray(classes(rows, of, TARGET), jnp.int32), jnp.asarray(x)
    state, update = optimizer(params)

    def loss(params, x, buffers, target):
        logits, buffers = forward(params, x, buffers)
        return cross_entropy(logits, target), buffers

    def train(all, x, target):
        params, state, buffers = all
        (value, buffers), gradients = jax.value_and_grad(loss, has_aux=True)(params, x, buffers, target)
        params, state = update(gradients, state, params)
        return (params, state, buffers), value

    train = jax.jit(train, donate_argnums=0)
    all = (params, state, buffers)

    def step():
        nonlocal all
        all, value = train(all, x, target)
        return float(value)

    return step


def mlp(sizes, activation):
    weights = Weights()
    params = [weights.linear(*pair) for pair in zip(sizes, sizes[1:])]

    def forward(params, x, buffers=()):
        for i, layer in enumerate(params):
            x = linear(layer, activation(x) if i else x)
        return x, buffers

    return params, forward


def act():
    params, forward = mlp([4, 64, 64, 2], jnp.tanh)
    call, x = jax.jit(forward), jnp.asarray(inputs([1, 4]))

    return blocking(lambda: call(params, x)[0])


def conv(p, x, stride=1, padding="SAME"):
    y = lax.conv_general_dilated(x, p["w"], (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p["b"] if "b" in p else y


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn():
    weights = Weights()
    params = {
        "conv1": weights.conv(1, 32, 3, True),
        "conv2": weights.conv(32, 64, 3, True),
        "fc1": weights.linear(3136, 128),
        "fc2": weights.linear(128, 10),
    }
    # The other peers flatten channels first.
    params["fc1"]["w"] = params["fc1"]["w"].reshape(64, 7, 7, 128).transpose(1, 2, 0, 3).reshape(3136, 128)

    def forward(p, x, buffers):
        x = pool(jax.nn.relu(conv(p["conv1"], x)))
        x = pool(jax.nn.relu(conv(p["conv2"], x)))
        return linear(p["fc2"], jax.nn.relu(linear(p["fc1"], x.reshape(64, 3136)))), buffers

    return training(params, adam, forward, inputs([64, 1, 28, 28]).transpose(0, 2, 3, 1), 64, 10)


def batch_norm(p, x, running):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    running = (0.9 * running[0] + 0.1 * mean, 0.9 * running[1] + 0.1 * var * (count / (count - 1)))
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["w"] + p["b"], running


def resnet():
    weights, running = Weights(), []

    def conv_norm(inputs, outputs, size):
        running.append((jnp.zeros(outputs), jnp.ones(outputs)))
        return {"conv": weights.conv(inputs, outputs, size), "norm": weights.norm(outputs)}

    strides, blocks = [], []
    first = conv_norm(3, 64, 3)
    for stage in range(4):
        outputs = 64 << stage
        for block in range(2):
            strides.append(2 if stage and not block else 1)
            begin = outputs // 2 if stage and not block else outputs
            parts = [conv_norm(begin, outputs, 3), conv_norm(outputs, outputs, 3)]
            blocks.append(parts + ([conv_norm(begin, outputs, 1)] if begin != outputs else []))
    params = {"first": first, "blocks": blocks, "fc": weights.linear(512, 10)}

    def forward(p, x, running):
        running, new = iter(running), []

        def part(p, x, stride=1):
            padding = [(p["conv"]["w"].shape[0] // 2,) * 2] * 2
            x, state = batch_norm(p["norm"], conv(p["conv"], x, stride, padding), next(running))
            new.append(state)
            return x

        x = jax.nn.relu(part(p["first"], x))
        for stride, block in zip(strides, p["blocks"]):
            y = part(block[1], jax.nn.relu(part(block[0], x, stride)))
            x = jax.nn.relu(y + (part(block[2], x, stride) if len(block) > 2 else x))
        return linear(p["fc"], x.mean((1, 2))), new

    return training(params, momentum, forward, inputs([16, 3, 32, 32]).transpose(0, 2, 3, 1), 16, 10, running)


def layer_norm(p, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["w"] + p["b"]


def gpt():
    weights = Weights()
    params = {"tokens": jnp.asarray(weights.take((1024, 128))), "positions": jnp.asarray(weights.take((64, 128)))}
    params["blocks"] = [
        {
            "ln1": weights.norm(128),
            "qkv": weights.linear(128, 384),
            "proj": weights.linear(128, 128),
            "ln2": weights.norm(128),
            "fc1": weights.linear(128, 512),
            "fc2": weights.linear(512, 128),
        }
        for _ in range(4)
    ]
    params |= {"ln": weights.norm(128), "head": weights.linear(128, 1024)}

    def forward(p, tokens, buffers):
        x = p["tokens"][tokens] + p["positions"]
        for b in p["blocks"]:
            q, k, v = (part.reshape(16, 64, 4, 32) for part in jnp.split(linear(b["qkv"], layer_norm(b["ln1"], x)), 3, -1))
            x = x + linear(b["proj"], jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(16, 64, 128))
            wide = jax.nn.gelu(linear(b["fc1"], layer_norm(b["ln2"], x)), approximate=False)
            x = x + linear(b["fc2"], wide)
        return linear(p["head"], layer_norm(p["ln"], x)).reshape(-1, 1024), buffers

    return training(params, adamw, forward, classes(16 * 64, 1024, INPUT).reshape(16, 64), 16 * 64, 1024)


def lstm():
    weights = Weights()
    take = lambda *shape: jnp.asarray(weights.take(shape).T)
    params = {"ih": take(512, 64), "hh": take(512, 128), "bih": take(512), "bhh": take(512)}
    params["head"] = weights.linear(128, 10)

    def forward(p, x, buffers):
        # The input's part of all steps at once.
        gates = x @ p["ih"] + p["bih"] + p["bhh"]

        def cell(state, gates):
            h, c = state
            i, f, g, o = jnp.split(gates + h @ p["hh"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((32, 128))
        (h, _), _ = lax.scan(cell, (zeros, zeros), gates)
        return linear(p["head"], h), buffers

    return training(params, adam, forward, inputs([64, 32, 64]), 32, 10)


def dispatch(which):
    a, b = jnp.asarray(inputs([64])), jnp.asarray(noise(64, TARGET))
    gradient = jax.jit(jax.grad(lambda a, b: (a + b).sum()))
    # Nothing is recorded before a gradient is requested.
    calls = {"add": lambda: a + b, "backward": lambda: gradient(a, b)}
    return blocking(calls[which]) if which in calls else None


# The last result of a GPU: once it is ready, all work started before is done.
last = None


def blocking(call, *given):
    def step():
        global last
        last = call(*given)
        if DEVICE == "cpu":
            last.block_until_ready()

    return step


def elementwise(op, size):
    x = jnp.asarray(inputs([size // 1024, 1024]))
    norm = {"w": jnp.ones(1024), "b": jnp.zeros(1024)}
    other = jnp.asarray(noise(size, TARGET).reshape(x.shape)) if op == "add" else None
    calls = {
        "add": lambda x, other, norm: x + other,
        "exp": lambda x, *_: jnp.exp(x),
        "tanh": lambda x, *_: jnp.tanh(x),
        "gelu": lambda x, *_: jax.nn.gelu(x, approximate=False),
        "layer_norm": lambda x, _, norm: layer_norm(norm, x),
        "softmax": lambda x, *_: jax.nn.softmax(x),
        "sum": lambda x, *_: x.sum(),
    }
    return blocking(jax.jit(calls[op]), x, other, norm)


def gemm(extents, dtype):
    m, n, k = map(int, extents.split("x"))
    a, b = jnp.asarray(inputs([m, k]), dtype), jnp.asarray(noise(k * n, TARGET).reshape(k, n), dtype)
    return blocking(jax.jit(jnp.matmul), a, b)


def attention(extents, dtype):
    batch, heads, queries, keys, width = map(int, extents.split("x"))

    def rows(count, seed):
        values = noise(batch * heads * count * width, seed).reshape(batch, heads, count, width)
        # JAX has the axis of heads after that of rows.
        return jnp.asarray(values.transpose(0, 2, 1, 3), dtype)

    call = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=queries == keys))
    return blocking(call, rows(queries, INPUT), rows(keys, TARGET), rows(keys, INPUT))


def perceptron(sizes, optimizer, batch):
    params, forward = mlp(sizes, jax.nn.relu)
    optimizer = {"sgd": sgd, "adam": adam}[optimizer]
    return training(params, optimizer, forward, inputs([batch, sizes[0]]), batch, sizes[-1])


DTYPES = {"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}


def make(case):
    match case.split():
        case ["mlp-act"]:
            return act()
        case ["mlp-rl", optimizer]:
            return perceptron([4, 64, 64, 2], optimizer, 32)
        case ["mlp-small", optimizer]:
            return perceptron([784, 128, 10], optimizer, 64)
        case ["mlp-big", optimizer]:
            return perceptron([784, 512, 512, 10], optimizer, 128)
        case ["cnn"]:
            return cnn()
        case ["resnet"]:
            return resnet()
        case ["gpt"]:
            return gpt()
        case ["lstm"]:
            return lstm()
        case ["dispatch", which]:
            return dispatch(which)
        case ["elementwise", op, size]:
            return elementwise(op, int(size))
        case ["gemm", extents, *dtype] if "f64" not in dtype:
            return gemm(extents, DTYPES["".join(dtype) or "f32"])
        case ["attention", extents, *dtype] if "f64" not in dtype:
            return attention(extents, DTYPES["".join(dtype) or "f32"])
    return None


serve(f"jax {jax.__version__}{'' if DEVICE == 'cpu' else f' on {jax.devices()[0].device_kind}'}", make, lambda: jax.block_until_ready(last))
