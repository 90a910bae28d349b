/* cli/infer_meter.c: the second instrument around forwards, what bounds them here, options that eval and sample share. */
#include <stdarg.h>
#include <string.h>

#include "infer.h"

tl_status tl_watch_open(tl_watch *w, int threads, tl_error *error) {
    *w = (tl_watch){.open = -1};
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, error);
    if (!kernels || !(w->meter = tl_meter_new(kernels, NULL, error)))
        return error->status;
    tl_allocator allocator = tl_meter_allocator(w->meter);
    tl_ctx_options options = {.kernels = tl_meter_kernels(w->meter), .allocator = &allocator, .threads = threads};
    w->ctx = tl_ctx_new(&options, error);
    return w->ctx ? TL_OK : error->status;
}

void tl_watch_close(tl_watch *w) {
    tl_ctx_free(w->ctx);
    tl_meter_free(w->meter);
    *w = (tl_watch){.open = -1};
}

void tl_watch_begin(tl_watch *w, int64_t forward) {
    tl_watch_end(w);
    w->open = forward;
    w->begun = tl_seconds();
    tl_meter_step_begin(w->meter);
}

void tl_watch_end(tl_watch *w) {
    tl_reading r;
    if (w->open < 0)
        return;
    tl_bucket *b = &w->bucket[w->open > 0 && !w->together];
    tl_meter_read(w->meter, &r);
    b->forwards++;
    b->allocations += r.allocations;
    b->matmul += r.flops;
    if (r.peak_bytes > b->peak_bytes)
        b->peak_bytes = r.peak_bytes;
    w->open = -1;
}

static int64_t bytes_of(const tl_watch *w, const tl_tensor *t) {
    return t ? tl_meter_block_bytes(w->meter, tl_tensor_storage_data(t)) : 0;
}

int64_t tl_watch_weights(const tl_watch *w, const tl_net *net) {
    const tl_parameter *list;
    int count = tl_net_parameters(net, &list);
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += bytes_of(w, list[i].tensor) + bytes_of(w, tl_net_scale(net, i));
    return bytes;
}

int64_t tl_watch_cache(const tl_watch *w, const tl_net *net, const tl_cache *cache) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < tl_net_model(net)->layers; i++)
        bytes += bytes_of(w, tl_cache_key(cache, i)) + bytes_of(w, tl_cache_value(cache, i));
    return bytes;
}

bool tl_bucket_equals(const tl_bucket *m, const tl_infer_counts *p) {
    return m->forwards == p->forwards && m->peak_bytes == p->peak_bytes && m->allocations == p->allocations &&
           m->matmul == p->executed;
}

tl_bound_here tl_bound_of(int threads, tl_dtype dtype, tl_u128 matmul, tl_u128 bytes, int64_t working_set) {
    tl_bound_here b = {0};
    tl_machine machine;
    tl_error ignored = {TL_OK, ""};
    if (tl_machine_load(threads, &machine, &ignored) != TL_OK || machine.n_levels == 0)
        return b;
    int level = 0; /* the smallest that the weights and the cache fit in */
    while (level < machine.n_levels - 1 && machine.level[level].bytes < working_set)
        level++;
    b.peak = tl_machine_peak(&machine, dtype);
    b.bandwidth = machine.level[level].bytes_per_s;
    snprintf(b.level, sizeof b.level, "%s", machine.level[level].name);
    b.known = b.peak > 0 && b.bandwidth > 0;
    if (b.known) {
        b.flop_seconds = tl_u128_double(matmul) / b.peak;
        b.byte_seconds = tl_u128_double(bytes) / b.bandwidth;
    }
    return b;
}

int tl_infer_whole(const tl_cli *cli, const char *name, const char *text, int64_t low, int64_t high, int64_t *value) {
    tl_error error = {TL_OK, ""};
    if (!text)
        return TL_EXIT_OK;
    if (tl_parse_size(text, value, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", name, error.message);
    if (*value < low || *value > high)
        return tl_usage(cli, "--%s %.40s: %lld to %lld would work", name, text, (long long)low, (long long)high);
    return TL_EXIT_OK;
}

int tl_infer_number(const tl_cli *cli, const char *name, const char *text, double low, double high, double *value) {
    tl_error error = {TL_OK, ""};
    if (text && tl_parse_number(text, low, high, value, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", name, error.message);
    return TL_EXIT_OK;
}

int tl_infer_fits(const tl_cli *cli, int64_t needs) {
    int64_t total = 0, available = 0;
    char need[TL_TEXT], has[TL_TEXT];
    tl_error ignored = {TL_OK, ""};
    if (tl_machine_memory(&total, &available, &ignored) != TL_OK || needs <= available)
        return TL_EXIT_OK;
    tl_say(cli, "does not fit: needs %s, %s are available", tl_text_bytes((double)needs, cli->units, need),
           tl_text_bytes((double)available, cli->units, has));
    return TL_EXIT_VIOLATED;
}

void tl_infer_say(const tl_cli *cli, const char *label, const char *format, ...) {
    va_list args;
    if (cli->verbosity < 0)
        return;
    fprintf(stderr, "  %-9s ", label);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}
