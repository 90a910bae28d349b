/* Arithmetic, functions, comparisons, logic and selections. */
#include <math.h>

#include "conformance/conformance.h"

#define UNARY(name, call)                                                                                              \
    static void run_##name(conformance_case *c) { c->y[0] = call(c->x[0]); }
#define UNARY_EXACT(name, call)                                                                                        \
    static void run_##name(conformance_case *c) {                                                                      \
        conformance_exact(c);                                                                                          \
        c->y[0] = call(c->x[0]);                                                                                       \
    }
#define BINARY_EXACT(name, call)                                                                                       \
    static void run_##name(conformance_case *c) {                                                                      \
        conformance_exact(c);                                                                                          \
        c->y[0] = call(c->x[0], c->x[1]);                                                                              \
    }
#define ALPHA(name, call, otherwise)                                                                                   \
    static void run_##name(conformance_case *c) { c->y[0] = call(c->x[0], conformance_real(c, "alpha", otherwise)); }

UNARY_EXACT(abs, tl_abs)
UNARY_EXACT(neg, tl_neg)
UNARY_EXACT(sign, tl_sign)
UNARY_EXACT(floor, tl_floor)
UNARY_EXACT(ceil, tl_ceil)
UNARY_EXACT(round, tl_round)
UNARY_EXACT(reciprocal, tl_reciprocal)
UNARY_EXACT(sqrt, tl_sqrt)
UNARY_EXACT(relu, tl_relu)
UNARY_EXACT(is_nan, tl_is_nan)
UNARY_EXACT(not, tl_logical_not)
UNARY(exp, tl_exp)
UNARY(log, tl_log)
UNARY(tanh, tl_tanh)
UNARY(sigmoid, tl_sigmoid)
UNARY(softplus, tl_softplus)
UNARY(softsign, tl_softsign)
UNARY(hard_swish, tl_hard_swish)
UNARY(mish, tl_mish)
UNARY(erf, tl_erf)
UNARY(sin, tl_sin)
UNARY(cos, tl_cos)
ALPHA(elu, tl_elu, 1.0)
ALPHA(leaky_relu, tl_leaky_relu, 0.01)
ALPHA(swish, tl_swish, 1.0)
BINARY_EXACT(add, tl_add)
BINARY_EXACT(sub, tl_sub)
BINARY_EXACT(mul, tl_mul)
BINARY_EXACT(div, tl_div)
BINARY_EXACT(and, tl_logical_and)
BINARY_EXACT(or, tl_logical_or)
BINARY_EXACT(xor, tl_logical_xor)
BINARY_EXACT(equal, tl_equal)
BINARY_EXACT(less, tl_less)
BINARY_EXACT(less_equal, tl_less_equal)
BINARY_EXACT(greater, tl_greater)
BINARY_EXACT(greater_equal, tl_greater_equal)

static void run_is_inf(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_is_inf(c->x[0], conformance_int(c, "detect_positive", 1) != 0,
                        conformance_int(c, "detect_negative", 1) != 0);
}

static void run_gelu(conformance_case *c) {
    const char *form = conformance_text(c, "approximate", "none");
    c->y[0] = form[0] == 't' ? tl_gelu_tanh(c->x[0]) : tl_gelu_erf(c->x[0]);
}

/* ONNX's result has the base's format, whatever the exponent's. */
static void run_pow(conformance_case *c) {
    tl_dtype to = c->in[0].dtype, wide = tl_dtype_promote(to, c->in[1].dtype);
    c->y[0] = tl_cast(tl_power(tl_cast(c->x[0], wide), tl_cast(c->x[1], wide)), to);
}

static void run_mod(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = conformance_int(c, "fmod", 0) ? tl_fmod(c->x[0], c->x[1]) : tl_mod(c->x[0], c->x[1]);
}

/* Several inputs, one after another. */
static tl_tensor *fold(conformance_case *c, tl_tensor *(*two)(tl_tensor *, tl_tensor *, const char *)) {
    tl_tensor *y = c->x[0];
    for (int i = 1; i < c->n_in; i++)
        y = two(y, c->x[i], TL_HERE);
    return y;
}
static void run_min(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = fold(c, tl_minimum_);
}
static void run_max(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = fold(c, tl_maximum_);
}
static void run_sum(conformance_case *c) { c->y[0] = fold(c, tl_add_); }
static void run_mean(conformance_case *c) { c->y[0] = tl_scale(fold(c, tl_add_), 1.0 / c->n_in, 0); }

static void run_clip(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_clamp(c->x[0], conformance_first(c, 1, -INFINITY), conformance_first(c, 2, INFINITY));
}

static void run_where(conformance_case *c) {
    conformance_exact(c);
    c->y[0] = tl_where(c->x[0], c->x[1], c->x[2]);
}

const conformance_entry conformance_elementwise[] = {
    {"Abs", run_abs},
    {"Add", run_add},
    {"And", run_and},
    {"Ceil", run_ceil},
    {"Clip", run_clip},
    {"Cos", run_cos},
    {"Div", run_div},
    {"Elu", run_elu},
    {"Equal", run_equal},
    {"Erf", run_erf},
    {"Exp", run_exp},
    {"Floor", run_floor},
    {"Gelu", run_gelu},
    {"Greater", run_greater},
    {"GreaterOrEqual", run_greater_equal},
    {"HardSwish", run_hard_swish},
    {"IsInf", run_is_inf},
    {"IsNaN", run_is_nan},
    {"LeakyRelu", run_leaky_relu},
    {"Less", run_less},
    {"LessOrEqual", run_less_equal},
    {"Log", run_log},
    {"Max", run_max},
    {"Mean", run_mean},
    {"Min", run_min},
    {"Mish", run_mish},
    {"Mod", run_mod},
    {"Mul", run_mul},
    {"Neg", run_neg},
    {"Not", run_not},
    {"Or", run_or},
    {"Pow", run_pow},
    {"Reciprocal", run_reciprocal},
    {"Relu", run_relu},
    {"Round", run_round},
    {"Sigmoid", run_sigmoid},
    {"Sign", run_sign},
    {"Sin", run_sin},
    {"Softplus", run_softplus},
    {"Softsign", run_softsign},
    {"Sqrt", run_sqrt},
    {"Sub", run_sub},
    {"Sum", run_sum},
    {"Swish", run_swish},
    {"Tanh", run_tanh},
    {"Where", run_where},
    {"Xor", run_xor},
    {NULL, NULL},
};
