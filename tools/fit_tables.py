#!/usr/bin/env python3
"""Writes src/kernel/body/vector_tables.h: what vector.h picks coefficients from.

    python3 tools/fit_tables.py >src/kernel/body/vector_tables.h     (needs numpy)

Q(a) for 0 <= a < 4 in 32 pieces, centred at k/8 and 1/8 wide, as polynomials of degree 5 in a - k/8 whose relative error is
nearly minimax (least squares reweighted by the error, Lawson 1961): 1 - Phi(a) for GELU, sigma(-2y) for its tanh form. Also
2^(i/32)."""
import math
import sys

import numpy as np

DEGREE, HALF = 5, 1 / 16


def tail_erf(a):
    return 0.5 * math.erfc(a / math.sqrt(2))


def tail_tanh(a):
    return 1 / (1 + math.exp(math.sqrt(8 / math.pi) * (a + 0.044715 * a**3)))


def fit(f, centre, n=400, rounds=60):
    r = HALF * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    y = np.array([f(centre + t) for t in r])
    basis = np.vander(r / HALF, DEGREE + 1, increasing=True) / y[:, None]
    weight = np.ones(n)
    for _ in range(rounds):
        root = np.sqrt(weight)[:, None]
        c = np.linalg.lstsq(basis * root, root[:, 0], rcond=None)[0]
        weight = weight * (abs(basis @ c - 1) + 1e-30)
        weight = np.maximum(weight / weight.max(), 1e-12)
    return [c[i] / HALF**i for i in range(DEGREE + 1)], abs(basis @ c - 1).max()


def number(value):
    text = "%.9g" % np.float32(value)
    return text + ("f" if "." in text or "e" in text else ".0f")


def row(values, indent):
    text, line = "", indent
    for v in values:
        word = number(v) + ", "
        if len(line) + len(word) > 121:
            text, line = text + line.rstrip() + "\n", indent
        line += word
    return text + line.rstrip().rstrip(",")


def main():
    print("/* kernel/body/vector_tables.h: written by tools/fit_tables.py, which says what these numbers are. */")
    print("#ifndef TALLY_KERNEL_BODY_VECTOR_TABLES_H\n#define TALLY_KERNEL_BODY_VECTOR_TABLES_H\n")
    print("// clang-format off")
    print("static const float tlv_two_to[32] = {\n%s};\n" % row([2 ** (i / 32) for i in range(32)], "    "))
    for name, f in (("erf", tail_erf), ("tanh", tail_tanh)):
        pieces = [fit(f, k / 8) for k in range(32)]
        worst = max(e for _, e in pieces) / 2**-24
        print("/* relative error before rounding: %.2f units of a float's last place at most */" % worst)
        print("static const float tlv_gelu_%s_tail[%d][32] = {" % (name, DEGREE + 1))
        for i in range(DEGREE + 1):
            print("    {%s}," % row([c[i] for c, _ in pieces], "     ").lstrip())
        print("};\n")
    print("// clang-format on\n\n#endif")


sys.exit(main())
