#include "conformance/conformance.h"

const conformance_entry conformance_reduce[] = {
    {NULL, NULL},
};
