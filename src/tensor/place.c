/* Where work happens: module paths and repetition, interned so that an event carries two small numbers. */
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

static uint32_t module_hash(uint32_t parent, const char *name, int64_t index) {
    uint64_t h = 1469598103934665603u ^ parent;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    h = (h ^ (uint64_t)index) * 1099511628211u;
    return (uint32_t)(h ^ (h >> 32));
}

static bool module_rehash(tl_ctx *ctx, uint32_t size) {
    uint32_t *table = tl_host_alloc(ctx, size * sizeof *table);
    if (!table)
        return false;
    for (uint32_t i = 1; i < ctx->module_count; i++) {
        uint32_t at = module_hash(ctx->modules[i].parent, ctx->modules[i].name, ctx->modules[i].index) & (size - 1);
        while (table[at])
            at = (at + 1) & (size - 1);
        table[at] = i;
    }
    tl_host_free(ctx, ctx->module_hash, ctx->module_hash_size * sizeof *table);
    ctx->module_hash = table;
    ctx->module_hash_size = size;
    return true;
}

/* "up.name.index" without the parts that are empty. */
static char *join(tl_ctx *ctx, const char *up, const char *name, const char *index) {
    const char *const parts[] = {up, name, index};
    size_t length = 0;
    for (int i = 0; i < 3; i++)
        length += strlen(parts[i]) + (i > 0 && length && *parts[i]);
    char *text = tl_host_alloc(ctx, length + 1), *at = text;
    for (int i = 0; text && i < 3; i++) {
        if (at > text && *parts[i])
            *at++ = '.';
        memcpy(at, parts[i], strlen(parts[i]));
        at += strlen(parts[i]);
    }
    return text;
}

static void text_free(tl_ctx *ctx, char *text) {
    if (text)
        tl_host_free(ctx, text, strlen(text) + 1);
}

static bool add_module(tl_ctx *ctx, uint32_t parent, const char *name, int64_t index, uint32_t *id) {
    int64_t capacity = ctx->module_capacity;
    if (!tl_host_grow(ctx, &ctx->modules, sizeof *ctx->modules, ctx->module_count + 1, &capacity))
        return false;
    ctx->module_capacity = (uint32_t)capacity;
    const char *up = ctx->module_count ? ctx->modules[parent].path : "";
    const char *up_pattern = ctx->module_count ? ctx->modules[parent].pattern : "";
    char digits[24] = "";
    if (index >= 0)
        snprintf(digits, sizeof digits, "%lld", (long long)index);
    tl_module_node node = {.parent = parent, .index = index};
    node.name = tl_host_text(ctx, name);
    node.path = join(ctx, up, name, digits);
    node.pattern = join(ctx, up_pattern, name, index >= 0 ? "*" : "");
    if (!node.name || !node.path || !node.pattern) {
        text_free(ctx, node.name);
        text_free(ctx, node.path);
        text_free(ctx, node.pattern);
        return false;
    }
    *id = ctx->module_count;
    ctx->modules[ctx->module_count++] = node;
    return true;
}

static uint32_t intern_module(tl_ctx *ctx, uint32_t parent, const char *name, int64_t index) {
    if (ctx->module_count * 2 >= ctx->module_hash_size && !module_rehash(ctx, ctx->module_hash_size * 2))
        return parent;
    uint32_t mask = ctx->module_hash_size - 1;
    uint32_t at = module_hash(parent, name, index) & mask;
    while (ctx->module_hash[at]) {
        const tl_module_node *m = &ctx->modules[ctx->module_hash[at]];
        if (m->parent == parent && m->index == index && strcmp(m->name, name) == 0)
            return ctx->module_hash[at];
        at = (at + 1) & mask;
    }
    uint32_t id;
    if (!add_module(ctx, parent, name, index, &id))
        return parent;
    ctx->module_hash[at] = id;
    return id;
}

bool tl_place_init(tl_ctx *ctx) {
    uint32_t root;
    ctx->region_capacity = 64;
    ctx->regions = tl_host_alloc(ctx, ctx->region_capacity * sizeof *ctx->regions);
    if (!ctx->regions || !module_rehash(ctx, 64) || !add_module(ctx, 0, "", -1, &root))
        return false;
    ctx->region_count = 1;
    return true;
}

void tl_place_free(tl_ctx *ctx) {
    for (uint32_t i = 0; i < ctx->module_count; i++) {
        tl_host_free(ctx, ctx->modules[i].name, strlen(ctx->modules[i].name) + 1);
        tl_host_free(ctx, ctx->modules[i].path, strlen(ctx->modules[i].path) + 1);
        tl_host_free(ctx, ctx->modules[i].pattern, strlen(ctx->modules[i].pattern) + 1);
    }
    tl_host_free(ctx, ctx->modules, ctx->module_capacity * sizeof *ctx->modules);
    tl_host_free(ctx, ctx->module_hash, ctx->module_hash_size * sizeof *ctx->module_hash);
    for (uint32_t i = 0; i < ctx->repeat_count; i++) {
        tl_host_free(ctx, ctx->repeats[i].regions, (size_t)ctx->repeats[i].run * sizeof(uint32_t));
        tl_host_free(ctx, (char *)(uintptr_t)ctx->repeats[i].symbol, strlen(ctx->repeats[i].symbol) + 1);
    }
    tl_host_free(ctx, ctx->repeats, ctx->repeat_capacity * sizeof *ctx->repeats);
    tl_host_free(ctx, ctx->regions, ctx->region_capacity * sizeof *ctx->regions);
}

void tl_module_begin_(tl_ctx *ctx, const char *name, int64_t index, const char *site) {
    int limit = (int)(sizeof ctx->module_stack / sizeof ctx->module_stack[0]);
    if (ctx->module_depth >= limit) {
        tl_ctx_fail(ctx, TL_ERR_STATE, "modules nest deeper than %d at %s (%s)", limit, name, site);
        ctx->module_depth++; /* so that ends still match */
        return;
    }
    ctx->module_stack[ctx->module_depth].module = ctx->place.module;
    ctx->module_stack[ctx->module_depth].site = site;
    ctx->module_depth++;
    ctx->place.module = intern_module(ctx, ctx->place.module, name, index);
}

void tl_module_end(tl_ctx *ctx) {
    int limit = (int)(sizeof ctx->module_stack / sizeof ctx->module_stack[0]);
    if (ctx->module_depth == 0)
        return;
    if (--ctx->module_depth < limit)
        ctx->place.module = ctx->module_stack[ctx->module_depth].module;
}

const char *tl_module_path(const tl_ctx *ctx, uint32_t module) {
    return module < ctx->module_count ? ctx->modules[module].path : "";
}

const char *tl_module_pattern(const tl_ctx *ctx, uint32_t module) {
    return module < ctx->module_count ? ctx->modules[module].pattern : "";
}

/* ---- repetition ---- */

static bool add_regions(tl_ctx *ctx, uint32_t repeat, tl_repeat_node *node) {
    for (int64_t i = 0; i < node->run; i++) {
        int64_t capacity = ctx->region_capacity;
        if (!tl_host_grow(ctx, &ctx->regions, sizeof *ctx->regions, (int64_t)ctx->region_count + 1, &capacity))
            return false;
        ctx->region_capacity = (uint32_t)capacity;
        node->regions[i] = ctx->region_count;
        ctx->regions[ctx->region_count++] = (tl_region_node){.repeat = repeat, .iteration = (uint32_t)i};
    }
    return true;
}

static tl_repeat repeat_begin(tl_ctx *ctx, const char *symbol, int64_t count, int64_t run) {
    tl_repeat r = {.ctx = ctx, .count = count, .run = run, .index = -1, .outer = ctx->place.region, .id = UINT32_MAX};
    if (count < 0 || run > 1 << 20) {
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s repeats %lld times; 0 to %d would work", symbol, (long long)count,
                    1 << 20);
        r.count = r.run = 0;
        return r;
    }
    for (uint32_t i = 0; i < ctx->repeat_count; i++)
        if (ctx->repeats[i].outer == r.outer && ctx->repeats[i].count == count && ctx->repeats[i].run == run &&
            strcmp(ctx->repeats[i].symbol, symbol) == 0) {
            r.id = i;
            return r;
        }
    int64_t capacity = ctx->repeat_capacity;
    tl_repeat_node node = {.outer = r.outer, .count = count, .run = run};
    if (!tl_host_grow(ctx, &ctx->repeats, sizeof *ctx->repeats, (int64_t)ctx->repeat_count + 1, &capacity))
        goto fail;
    ctx->repeat_capacity = (uint32_t)capacity;
    node.symbol = tl_host_text(ctx, symbol);
    node.regions = tl_host_alloc(ctx, (size_t)run * sizeof *node.regions);
    if (!node.symbol || !node.regions || !add_regions(ctx, ctx->repeat_count, &node)) {
        tl_host_free(ctx, (char *)(uintptr_t)node.symbol, strlen(symbol) + 1);
        tl_host_free(ctx, node.regions, (size_t)run * sizeof *node.regions);
        goto fail;
    }
    if (ctx->space) {
        tl_dim dim = tl_dim_symbol(ctx, symbol, count, NULL);
        node.formula = dim.formula;
    }
    r.id = ctx->repeat_count;
    ctx->repeats[ctx->repeat_count++] = node;
    return r;
fail:
    r.count = r.run = 0;
    return r;
}

tl_repeat tl_repeat_begin(tl_ctx *ctx, const char *symbol, int64_t count) {
    return repeat_begin(ctx, symbol, count, count);
}

tl_repeat tl_repeat_begin_condensed(tl_ctx *ctx, const char *symbol, int64_t count) {
    return repeat_begin(ctx, symbol, count, ctx->kernels == NULL && count > 2 ? 2 : count);
}

bool tl_repeat_next(tl_repeat *r) {
    if (r->open) {
        tl_scope_end(r->ctx);
        r->open = false;
    }
    r->index++;
    if (r->run < r->count)
        r->ctx->place.times = 0;
    if (r->id == UINT32_MAX || r->index >= r->run || r->ctx->error.status != TL_OK) {
        r->ctx->place.region = r->outer;
        return false;
    }
    r->ctx->place.region = r->ctx->repeats[r->id].regions[r->index];
    if (r->run < r->count && r->index == 1)
        r->ctx->place.times = r->count - 1;
    tl_scope_begin(r->ctx);
    r->open = true;
    return true;
}

void tl_repeat_into(tl_repeat *r, tl_tensor **x, tl_tensor *carried) {
    if (!r->open)
        return;
    tl_scope_end_into(r->ctx, x, carried);
    r->open = false;
}

void tl_repeat_end(tl_repeat *r) {
    if (r->open)
        tl_scope_end(r->ctx);
    r->open = false;
    r->index = r->run;
    if (r->run < r->count)
        r->ctx->place.times = 0;
    r->ctx->place.region = r->outer;
}
