/* Weights of the real gpt2 (124M) and of Llama-3.2-1B's shape, random, between tally and PyTorch: what tally writes gives the
 * same logits there to 1e-4, and what is written there gives the same here. tests/fixtures/weights_oracle.py is the other
 * side, with its own reader of safetensors. Gigabytes and minutes:
 *
 *   exhaustive_weights [NAME...]    gpt2 llama-3.2-1b unless named; gpt2-tiny and llama-tiny are there too
 *   TMPDIR                          where the files go: 9 GB for the larger one
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/nn.h"
#include "tally/weights.h"

enum { PATH_SIZE = 512, TOKENS = 16 };

typedef struct world {
    tl_ctx *ctx;
    tl_net *net;
    tl_error error;
} world;

static int failed(const world *w, const char *what) {
    fprintf(stderr, "%s: %s\n", what,
            w->error.status != TL_OK || !w->ctx ? w->error.message : tl_ctx_error(w->ctx)->message);
    return 1;
}

static int begin(world *w, const tl_model *model) {
    const tl_kernels *kernels = tl_kernels_for_cpu(NULL, &w->error);
    tl_ctx_options options = {.kernels = kernels, .threads = 2, .seed_init = 5};
    w->ctx = kernels ? tl_ctx_new(&options, &w->error) : NULL;
    w->net = w->ctx ? tl_net_new(w->ctx, model, TL_F32) : NULL;
    return w->net ? 0 : failed(w, "no net");
}

static void end(world *w) {
    tl_net_free(w->net);
    tl_ctx_free(w->ctx);
}

/* Norms and biases start at 1 and 0, which would hide a mistake with them. */
static void stir(tl_net *net) {
    const tl_parameter *list;
    uint32_t state = 1;
    int n = tl_net_parameters(net, &list);
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; tl_tensor_ndim(list[i].tensor) == 1 && k < tl_tensor_count(list[i].tensor); k++) {
            state = state * 1664525 + 1013904223; /* Numerical Recipes' */
            ((float *)tl_tensor_data(list[i].tensor))[k] += (float)(state >> 8) * 0x1p-24f * 0.2f - 0.1f;
        }
}

static float *forward(world *w, const int32_t *tokens, int64_t count, int64_t *logits) {
    tl_ctx *ctx = w->ctx;
    tl_scope_begin(ctx);
    tl_tensor *input = tl_from_data(ctx, TL_I32, TL_SHAPE(ctx, tl_dim_of(1), tl_dim_of(count)), TL_DATA, tokens, count);
    tl_tensor *output = tl_net_forward(w->net, input);
    *logits = tl_tensor_count(output);
    size_t bytes = (size_t)*logits * sizeof(float);
    float *out = output ? malloc(bytes) : NULL;
    if (out && tl_tensor_read(output, out, bytes) != TL_OK) {
        free(out);
        out = NULL;
    }
    tl_scope_end(ctx);
    return out;
}

static bool write_raw(const char *folder, const char *name, const void *data, size_t bytes) {
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    bool ok = file && fwrite(data, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && ok;
}

static size_t read_raw(const char *folder, const char *name, void *data, size_t most) {
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(data, 1, most, file) : 0;
    if (file)
        fclose(file);
    return n;
}

/* 0: it ran and said so. */
static int command(const char *const *words) {
    int result = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    return child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0;
}

#define PYTHON(...)                                                                                                    \
    command((const char *const[]){"/usr/bin/python3", "tests/fixtures/weights_oracle.py", __VA_ARGS__, NULL})

static long peak_megabytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

static int theirs_from_ours(const char *name, const tl_model *model, const char *folder) {
    world w = {0};
    int32_t tokens[TOKENS];
    int64_t n = 0, count = model->vocab < 100 ? 7 : TOKENS;
    char token_file[PATH_SIZE + 16], logit_file[PATH_SIZE + 16];
    tl_weights_options options = {.shard_bytes = model->vocab > 100000 ? INT64_C(2000000000) : 0,
                                  .prefix = model->family == TL_FAMILY_GPT2 ? "transformer." : NULL};
    if (begin(&w, model))
        return 1;
    stir(w.net);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(((int64_t)i * 7919 + 13) % model->vocab);
    float *logits = forward(&w, tokens, count, &n);
    long before = peak_megabytes();
    int status = !logits || tl_weights_save(folder, w.net, &options, &w.error) != TL_OK ? failed(&w, "saving") : 0;
    printf("# %s: saving raised the peak of %ld MB by %ld MB\n", name, before, peak_megabytes() - before);
    end(&w); /* room for PyTorch */
    if (status == 0 && (!write_raw(folder, "tokens.i32", tokens, (size_t)count * sizeof *tokens) ||
                        !write_raw(folder, "logits.f32", logits, (size_t)n * sizeof(float))))
        status = 1;
    free(logits);
    printf("# %s: written here, computed in PyTorch: ", name);
    snprintf(token_file, sizeof token_file, "%s/tokens.i32", folder);
    snprintf(logit_file, sizeof logit_file, "%s/logits.f32", folder);
    return status ? status : PYTHON("check", folder, token_file, logit_file);
}

static int ours_from_theirs(const char *name, const char *folder, const char *dtype) {
    world w = {0};
    tl_model model;
    tl_weights_report report;
    int32_t tokens[TOKENS];
    int64_t n = 0;
    if (PYTHON("make", folder, name, dtype) || tl_model_find(folder, &model, &w.error) != TL_OK || begin(&w, &model))
        return failed(&w, "no model");
    if (tl_weights_load(folder, w.net, &report, &w.error) != TL_OK)
        return failed(&w, "loading");
    int64_t count = (int64_t)(read_raw(folder, "tokens.i32", tokens, sizeof tokens) / sizeof *tokens);
    float *logits = forward(&w, tokens, count, &n), *theirs = malloc((size_t)n * sizeof *theirs);
    double most = 0;
    bool ok = logits && theirs && n == count * model.vocab &&
              read_raw(folder, "logits.f32", theirs, (size_t)n * sizeof *theirs) == (size_t)n * sizeof *theirs;
    for (int64_t i = 0; ok && i < n; i++) {
        double difference = (double)logits[i] - (double)theirs[i];
        difference = difference < 0 ? -difference : difference;
        most = difference <= most ? most : difference; /* takes NaN */
    }
    printf("# %s: written in PyTorch (%s), computed here: %lld logits differ by %.3g; peak %ld MB; %s\n", name, dtype,
           (long long)n, most, peak_megabytes(), report.note);
    free(logits);
    free(theirs);
    end(&w);
    return !(ok && most <= 1e-4);
}

static int both(const char *name) {
    char folder[PATH_SIZE - 64], here[PATH_SIZE];
    const char *tmp = getenv("TMPDIR");
    tl_model model;
    tl_error error = {TL_OK, ""};
    snprintf(folder, sizeof folder, "%.400s/tally-weights-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    bool llama = strncmp(name, "llama", 5) == 0;
    snprintf(here, sizeof here, "%s/theirs", folder);
    int wrong = ours_from_theirs(name, here, llama ? "BF16" : "F32");
    printf("%s %s: theirs here\n", wrong ? "not ok" : "ok", name);
    if (tl_model_find(here, &model, &error) == TL_OK) { /* the same shape */
        snprintf(here, sizeof here, "%s/ours", folder);
        int other = theirs_from_ours(name, &model, here);
        printf("%s %s: ours there\n", other ? "not ok" : "ok", name);
        wrong |= other;
    }
    return command((const char *const[]){"/bin/rm", "-r", folder, NULL}) || wrong;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"gpt2", "llama-3.2-1b"};
    int wrong = 0;
    if (access("/usr/bin/python3", X_OK) != 0 ||
        command((const char *const[]){"/usr/bin/python3", "-c", "import torch, numpy", NULL}) != 0) {
        printf("skip weights: /usr/bin/python3 has no PyTorch (python3-torch)\n");
        return 0;
    }
    for (int i = 0; i < 2 && argc < 2; i++)
        wrong |= both(names[i]);
    for (int i = 1; i < argc; i++)
        wrong |= both(argv[i]);
    return wrong;
}
