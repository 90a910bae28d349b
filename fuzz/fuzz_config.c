/* Any bytes at all as a model description: read or refused with a message, never a crash, hang or a model that does not check. */
#include "tally/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_model model;
    tl_error error = {0}, again = {0};
    tl_status status = tl_config_parse((const char *)data, size, "fuzz/config.json", &model, &error);
    if (status == TL_OK) {
        if (error.status != TL_OK || tl_model_check(&model, &again) != TL_OK)
            abort();
        if (model.n_assumed > TL_MODEL_NOTES || model.n_ignored > TL_MODEL_NOTES)
            abort();
    } else if (error.status != status || error.message[0] == '\0') {
        abort();
    }
    /* A message goes to terminals and logs: no control characters. */
    for (const char *c = error.message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    return 0;
}
