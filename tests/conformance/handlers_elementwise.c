/* Arithmetic, functions, comparisons, selections. */
#include "conformance/conformance.h"

static void run_neg(conformance_case *c) { c->y[0] = tl_neg(c->x[0]); }
static void run_exp(conformance_case *c) { c->y[0] = tl_exp(c->x[0]); }
static void run_log(conformance_case *c) { c->y[0] = tl_log(c->x[0]); }
static void run_sqrt(conformance_case *c) { c->y[0] = tl_sqrt(c->x[0]); }
static void run_tanh(conformance_case *c) { c->y[0] = tl_tanh(c->x[0]); }
static void run_relu(conformance_case *c) { c->y[0] = tl_relu(c->x[0]); }

const conformance_entry conformance_elementwise[] = {
    {"Exp", run_exp},   {"Log", run_log},   {"Neg", run_neg}, {"Relu", run_relu},
    {"Sqrt", run_sqrt}, {"Tanh", run_tanh}, {NULL, NULL},
};
