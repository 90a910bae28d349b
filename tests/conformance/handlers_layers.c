/* Norms, losses, attention, positions. */
#include "conformance/conformance.h"

const conformance_entry conformance_layers[] = {
    {NULL, NULL},
};
