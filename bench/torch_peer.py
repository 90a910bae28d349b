"""The PyTorch side of bench_torch: one case at a time, driven over pipes so that both sides are timed in one run, in turns.

    cases arrive as `setup NAME THREADS [SIZE ...]`, answered by `ok` or `no REASON`;
    `run` is answered by the seconds of one iteration: CPU time where THREADS is 1, wall time otherwise.

PyTorch is taken at its best: inference_mode where nothing is differentiated, memory that stays with the process, and for the
call overhead the faster of a Python loop and a TorchScript loop."""
import ctypes
import sys
import time

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
libc = ctypes.CDLL(None)
libc.mallopt(M_MMAP_MAX, 0)
libc.mallopt(M_TRIM_THRESHOLD, 2147483647)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402


@torch.jit.script
def script_add(a: torch.Tensor, b: torch.Tensor, n: int):
    for _ in range(n):  # each needs the one before: the compiler would merge equal ones
        a = torch.add(a, b)
    return a


def python_add(a, b, n):
    add = torch.add
    for _ in range(n):
        add(a, b)


def set_threads(n):
    """OpenBLAS' own threads are not PyTorch's."""
    torch.set_num_threads(n)
    with open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "openblas" in line or "libblas" in line}:
            setter = getattr(ctypes.CDLL(path), "openblas_set_num_threads", None)
            if setter:
                setter(n)


def matrix(*shape):
    n = 1
    for s in shape:
        n *= s
    return ((torch.arange(n, dtype=torch.float32) % 101) * 0.05 - 2.5).reshape(shape)


class Cruncher(torch.nn.Module):
    """CS336 lecture 2."""

    def __init__(self, width, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))
        self.final = torch.nn.Linear(width, 1, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.final(x).squeeze(-1)


class Block(torch.nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        hidden = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm_1(x)).split(d, -1))
        scores = torch.softmax(q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5 + self.hidden, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT2(torch.nn.Module):
    def __init__(self, layers, width, heads, length, vocab):
        super().__init__()
        self.token, self.position = torch.nn.Embedding(vocab, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


def training(model, optimizer, loss_of):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def make_step(name, size):
    torch.manual_seed(0)
    if name == "cruncher":
        width, layers, batch = size
        x, y = torch.randn(batch, width), torch.randn(batch)
        model = Cruncher(width, layers)
        return training(model, torch.optim.SGD(model.parameters(), lr=0.01), lambda m: F.mse_loss(m(x), y))
    layers, width, heads, length, vocab, batch = size
    ids = torch.arange(batch * length).reshape(batch, length) % vocab
    model = GPT2(layers, width, heads, length, vocab)
    flat = ids.reshape(-1)
    return training(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), lambda m: F.cross_entropy(m(ids).view(-1, vocab), flat)
    )


def make(name, size):
    """A function of one iteration, without gradients."""
    if name.startswith("matmul"):
        m, n, k, batch = size
        a = matrix(batch, k, m).transpose(1, 2) if name == "matmul_tn" else matrix(batch, m, k)
        b = matrix(batch, n, k).transpose(1, 2) if name == "matmul_nt" else matrix(batch, k, n)
        a, b = (a[0], b[0]) if batch == 1 else (a, b)
        return lambda: torch.matmul(a, b)
    x = matrix(*size)
    if name in ("add", "mul"):
        y = matrix(*size)
        return (lambda: torch.add(x, y)) if name == "add" else (lambda: torch.mul(x, y))
    gain, bias = torch.ones(size[-1]), torch.zeros(size[-1])
    return {
        "exp": lambda: torch.exp(x),
        "sum": lambda: torch.sum(x),
        "mean": lambda: torch.mean(x),
        "max": lambda: torch.amax(x),
        "sum_rows": lambda: torch.sum(x, 1),
        "sum_columns": lambda: torch.sum(x, 0),
        "softmax": lambda: torch.softmax(x, -1),
        "layer_norm": lambda: F.layer_norm(x, (size[-1],), gain, bias, 1e-5),
        "rms_norm": lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gain,
        "gelu_tanh": lambda: F.gelu(x, approximate="tanh"),
        "gelu_erf": lambda: F.gelu(x),
        "transpose": lambda: x.t().contiguous(),
        "permute": lambda: x.permute(0, 2, 1, 3).contiguous(),
        "cast": lambda: x.to(torch.bfloat16),
    }[name]


def timed(run, threads, least=2e-3):
    clock = time.process_time if threads == 1 else time.perf_counter
    count = 1
    while True:
        start = clock()
        for _ in range(count):
            run()
        spent = clock() - start
        if count == 1 and spent >= 1e-4:  # as bench_torch's sample
            for _ in range(3):
                start = clock()
                run()
                spent = min(spent, clock() - start)
            return spent
        if spent >= least or count >= 1 << 20:
            return spent / count
        count *= 4


def add_one(threads):
    a, b, n = torch.ones(1), torch.ones(1), 2000
    best = []
    for run in (script_add, python_add):
        run(a, b, n)
        best.append(timed(lambda: run(a, b, n), threads) / n)
    return min(best)


def main():
    run, threads, grad = None, 1, False
    print("PyTorch", torch.__version__, flush=True)
    for line in sys.stdin:
        word = line.split()
        try:
            if word[0] == "setup":
                run = None
                threads, name, size = int(word[2]), word[1], [int(s) for s in word[3:]]
                set_threads(threads)
                grad = name in ("cruncher", "gpt2")
                if grad:
                    run = make_step(name, size)
                elif name != "add_one":
                    run = make(name, size)
                for _ in range(3):
                    if run:
                        run()
                print("ok", flush=True)
            else:
                with torch.inference_mode(not grad):
                    print(timed(run, threads) if run else add_one(threads), flush=True)
        except Exception as error:  # the other side prints it and goes on without this case
            print("no", " ".join(str(error).split())[:200], flush=True)


main()
