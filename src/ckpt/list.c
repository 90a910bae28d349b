/* ckpt/list.c: a run as a list of named tensors: "model.NAME", "master.NAME", "optim.STATE.NAME", "PART.NAME". */
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/nearest.h"
#include "tally/lora.h"

uint64_t tl_ckpt_hash(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

static tl_status add(tl_ckpt_list *list, const char *part, const char *state, const char *name, const tl_tensor *tensor,
                     tl_error *error) {
    char whole[TL_CKPT_NAME + 1], quoted[96];
    int length = snprintf(whole, sizeof whole, "%s.%s%s%s", part, state ? state : "", state ? "." : "", name);
    if (length < 0 || length > TL_CKPT_NAME || !tl_tensor_is_contiguous(tensor))
        return tl_fail(error, TL_ERR_UNSUPPORTED,
                       "%s: a checkpoint takes names of at most %d bytes and contiguous tensors",
                       tl_quotable(name, strlen(name), quoted, sizeof quoted), TL_CKPT_NAME);
    if (list->count == list->capacity) {
        int64_t more = list->capacity ? 2 * list->capacity : 64;
        tl_ckpt_entry *larger = realloc(list->entries, (size_t)more * sizeof *larger);
        if (!larger)
            return tl_fail(error, TL_ERR_MEMORY, "no memory for a checkpoint's table of tensors");
        list->entries = larger;
        list->capacity = more;
    }
    tl_ckpt_entry *e = &list->entries[list->count];
    *e = (tl_ckpt_entry){.tensor = tensor, .bytes = tl_tensor_count(tensor) * tl_dtype_bytes(tl_tensor_dtype(tensor))};
    e->name = strdup(whole);
    if (!e->name)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a checkpoint's table of tensors");
    list->count++;
    return TL_OK;
}

/* A quantised weight comes with its scales, without which it means nothing. */
static tl_status add_parameter(tl_ckpt_list *list, const tl_net *net, int index, const tl_parameter *p,
                               tl_error *error) {
    const char *suffix = NULL;
    char name[TL_CKPT_NAME];
    const tl_tensor *scale;
    tl_status status = add(list, "model", NULL, p->name, p->tensor, error);
    for (int k = 0; status == TL_OK && (scale = tl_net_quantization(net, index, k, &suffix)) != NULL; k++) {
        snprintf(name, sizeof name, "%s.%s", p->name, suffix);
        status = add(list, "model", NULL, name, scale, error);
    }
    return status;
}

static tl_status add_net(const tl_ckpt_contents *c, tl_ckpt_list *list, tl_error *error) {
    const tl_parameter *parameters;
    int count = tl_net_parameters(c->net, &parameters);
    tl_status status = TL_OK;
    for (int i = 0; i < count && status == TL_OK; i++)
        status = add_parameter(list, c->net, i, &parameters[i], error);
    for (int i = 0; c->optimizer && i < count && status == TL_OK; i++) {
        const tl_tensor *master = tl_optimizer_master(c->optimizer, i);
        if (master)
            status = add(list, "master", NULL, parameters[i].name, master, error);
    }
    for (int k = 0; c->optimizer && k < TL_OPTIM_MAX_STATES; k++)
        for (int i = 0; i < count && status == TL_OK; i++) {
            const tl_tensor *state = tl_optimizer_state(c->optimizer, i, k);
            if (state)
                status = add(list, "optim", tl_optimizer_state_name(c->optimizer, k), parameters[i].name, state, error);
        }
    return status;
}

static bool is_part_name(const char *name) {
    static const char *const taken[] = {"model", "master", "optim", "tally"};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strcmp(name, taken[i]) == 0)
            return false;
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length <= 64 && name[length] == '\0';
}

static tl_status add_parts(const tl_ckpt_contents *c, tl_ckpt_list *list, tl_error *error) {
    tl_status status = TL_OK;
    for (int p = 0; p < c->n_parts && status == TL_OK; p++) {
        const tl_ckpt_part *part = &c->parts[p];
        char quoted[96];
        if (!is_part_name(part->name))
            return tl_fail(error, TL_ERR_ARGUMENT, "\"%s\" cannot be the name of a checkpoint's part",
                           tl_quotable(part->name, strlen(part->name), quoted, sizeof quoted));
        for (int64_t i = 0; i < part->n_tensors && status == TL_OK; i++)
            status = add(list, part->name, NULL, part->tensors[i].name, part->tensors[i].tensor, error);
    }
    return status;
}

/* Stable, and few different widths: one pass each. */
static tl_status order_by_width(tl_ckpt_list *list, tl_error *error) {
    tl_ckpt_entry *sorted = malloc(((size_t)list->count + 1) * sizeof *sorted);
    int64_t n = 0;
    if (!sorted)
        return tl_fail(error, TL_ERR_MEMORY, "no memory for a checkpoint's table of tensors");
    for (int width = 8; width >= 1; width /= 2)
        for (int64_t i = 0; i < list->count; i++)
            if (tl_dtype_bytes(tl_tensor_dtype(list->entries[i].tensor)) == width)
                sorted[n++] = list->entries[i];
    free(list->entries);
    list->entries = sorted;
    list->capacity = list->count + 1;
    return TL_OK;
}

tl_status tl_ckpt_list_make(const tl_ckpt_contents *contents, tl_ckpt_list *list, tl_error *error) {
    *list = (tl_ckpt_list){0};
    tl_status status = add_net(contents, list, error);
    if (status == TL_OK && contents->optimizer)
        status = add_parts(contents, list, error);
    if (status == TL_OK)
        status = order_by_width(list, error);
    if (status != TL_OK)
        tl_ckpt_list_free(list);
    return status;
}

void tl_ckpt_list_free(tl_ckpt_list *list) {
    for (int64_t i = 0; i < list->count; i++)
        free(list->entries[i].name);
    free(list->entries);
    *list = (tl_ckpt_list){0};
}
