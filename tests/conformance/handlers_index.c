/* Gather, scatter, sort and selections. */
#include "conformance/conformance.h"

const conformance_entry conformance_index[] = {
    {NULL, NULL},
};
