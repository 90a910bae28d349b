#include "conformance/conformance.h"

const conformance_entry conformance_shape[] = {
    {NULL, NULL},
};
