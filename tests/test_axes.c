/* Patterns that are wrong and what the messages say; names of axes; pack and unpack; checked shapes. Which patterns are
 * wrong follows numpy.einsum's and einops' documentation; the words of the messages are what FAULTS asks of them: the axis,
 * its sizes and the place. */
#include "layers.h"

#include "tally/axes.h"

#define D(n) tl_dim_of(n)

static tl_tensor *sized(tl_ctx *ctx, int ndim, const int64_t *size) {
    tl_shape shape = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        shape.dim[i] = D(size[i]);
    return tl_empty(ctx, TL_F32, shape, TL_WORK);
}
#define SIZED(ctx, ...)                                                                                                \
    sized((ctx), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* The call failed, its message has `words`, and the caret stands below `at` of the pattern (NULL: no caret asked). */
static void refused(tl_ctx *ctx, const void *result, const char *pattern, const char *words, const char *at) {
    const char *message = tl_ctx_error(ctx)->message;
    if (result || tl_ctx_status(ctx) == TL_OK)
        fail_msg("\"%s\" was accepted", pattern);
    if (!strstr(message, words))
        fail_msg("\"%s\": the message does not say \"%s\": %s", pattern, words, message);
    if (at) {
        const char *caret = strrchr(message, '\n');
        const char *place = strstr(pattern, at);
        assert_non_null(place);
        if (!caret || strcspn(caret, "^") != (size_t)(place - pattern) + 5)
            fail_msg("\"%s\": the caret is not below \"%s\": %s", pattern, at, message);
    }
    tl_ctx_clear_error(ctx);
}

static void einsum_patterns_are_refused(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    static const struct {
        const char *pattern;
        int n, ndim[3];
        int64_t size[3][8];
        const char *words, *at;
    } cases[] = {
        {"ij,jk->ik", 2, {2, 2}, {{2, 3}, {4, 5}}, "axis j is 4 in operand 1, but 3 in operand 0", "jk"},
        {"batch seq, seq d -> batch d", 2, {2, 2}, {{2, 3}, {4, 5}}, "axis seq is 4 in operand 1, but 3 in", "seq d"},
        {"ii->i", 1, {2}, {{2, 3}}, "axis i is 3 in operand 0, but 2 in operand 0", "i->"},
        {"ij,jk->il", 2, {2, 2}, {{2, 3}, {3, 2}}, "unknown axis \"l\": no operand has it", "l"},
        {"ij->ii", 1, {2}, {{2, 3}}, "axis \"i\" is named twice in the output", NULL},
        {"ij,jk->ik", 1, {2}, {{2, 3}}, "the pattern has 2 operands, but 1 were given", NULL},
        {"ij", 2, {2, 2}, {{2, 3}, {3, 2}}, "the pattern has 1 operands, but 2 were given", NULL},
        {"ijk->i", 1, {2}, {{2, 3}}, "has 2 axes, but the pattern names 3", "ijk"},
        {"i->i", 1, {2}, {{2, 3}}, "has 2 axes, but the pattern names 1", "i"},
        {"batch -> batch", 1, {1}, {{4}}, "each letter is an axis", "batch"},
        {"ij->j i", 1, {2}, {{2, 3}}, "each word is an axis", "ij"},
        {"...ijk->i", 1, {2}, {{2, 3}}, "names at least 3", "..."},
        {"...i->i", 1, {2}, {{2, 3}}, "the output lacks ...", NULL},
        {"...i...->i", 1, {2}, {{2, 3}}, "a second ... in one operand", NULL},
        {"...i->......i", 1, {2}, {{2, 3}}, "a second ... in the output", NULL},
        {"...i,...i->...", 2, {2, 2}, {{2, 3}, {4, 3}}, "is 4 in operand 1, but 2 before", NULL},
        {"ij->jk->k", 1, {2}, {{2, 3}}, "a second ->", NULL},
        {"ij->j,i", 1, {2}, {{2, 3}}, "',' after the output", ",i"},
        {"(ij)->i", 1, {1}, {{6}}, "'(' has no meaning in einsum", "("},
        {"i2->i", 1, {2}, {{2, 3}}, "has 2 axes, but the pattern names 1", NULL},
        {"i 2->i", 1, {2}, {{2, 3}}, "'2' has no meaning in einsum", "2"},
        {"i*->i", 1, {2}, {{2, 3}}, "'*' has no meaning in einsum", "*"},
        {"i..j->ij", 1, {2}, {{2, 3}}, "an ellipsis is three of them", ".."},
        {"ij-ji", 1, {2}, {{2, 3}}, "an arrow is ->", "-"},
        {"ij>ji", 1, {2}, {{2, 3}}, "an arrow is ->", ">"},
        {"ij;ji", 1, {2}, {{2, 3}}, "';' has no meaning", ";"},
        {"ij\x01->j", 1, {2}, {{2, 3}}, "byte 0x01 has no meaning", NULL},
        {"i\xc3\xa9->i", 1, {2}, {{2, 3}}, "byte 0xc3 has no meaning", NULL},
        {"abcdef,ghijkl->abcdefghijkl", 2, {6, 6}, {{2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2}}, "too many axes", NULL},
        {"abcdef,ghijkl,abcdefghijkl->", 3, {6, 6, 1}, {{2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2}, {2}}, "names 12", NULL},
        {"i,j->ij", 2, {1, 0}, {{2}, {0}}, "operand 1, f32[], has 0 axes, but the pattern names 1", "j"},
    };
    for (int64_t i = 0; i < COUNT(cases); i++) {
        tl_tensor *in[3];
        for (int k = 0; k < cases[i].n; k++)
            in[k] = sized(ctx, cases[i].ndim[k], cases[i].size[k]);
        refused(ctx, tl_einsum(ctx, cases[i].pattern, in, cases[i].n), cases[i].pattern, cases[i].words, cases[i].at);
    }
    tl_tensor *x = SIZED(ctx, 2, 3), *many[17];
    for (int i = 0; i < 17; i++)
        many[i] = x;
    refused(ctx, tl_einsum(ctx, NULL, &x, 1), "", "no pattern", NULL);
    refused(ctx, tl_einsum(ctx, "ij", &x, 0), "ij", "0 operands; 1 to 16", NULL);
    refused(ctx, tl_einsum(ctx, "ij", many, 17), "ij", "17 operands; 1 to 16", NULL);
    char big[2100];
    memset(big, ' ', sizeof big);
    big[sizeof big - 1] = '\0';
    refused(ctx, tl_einsum(ctx, big, &x, 1), "", "longer than 2000 bytes", NULL);
    tl_ctx_free(ctx);
}

typedef enum call { REARRANGE, SUM, REPEAT } call;

static const struct {
    call call;
    const char *pattern;
    int ndim;
    int64_t size[8];
    tl_axis_length length[2];
    const char *words, *at;
} wrong_einops[] = {
    {REARRANGE, "b (h d) -> b h d", 2, {2, 42528}, {{"h", {.size = 21}}}, "42528 not divisible by 21", "(h d) ->"},
    {REARRANGE,
     "b (h d) -> b h d",
     2,
     {2, 12},
     {{"h", {.size = 4}}, {"d", {.size = 2}}},
     "axis (h d) is 12 in the tensor, but the lengths given multiply to 8",
     "(h d) ->"},
    {REARRANGE, "b (h d) -> b h d", 2, {2, 12}, {{0}}, "lengths of both h and d in (h d) are unknown", "(h d) ->"},
    {REARRANGE,
     "b t -> t b",
     2,
     {2, 3},
     {{"h", {.size = 4}}},
     "axis length given for an axis that is not there: \"h\" = 4",
     NULL},
    {REARRANGE,
     "b t -> t b",
     2,
     {2, 3},
     {{"t", {.size = 4}}},
     "axis t is 3 in the tensor, but 4 was asked for",
     "t ->"},
    {REARRANGE, "b (t c) -> t b c", 2, {2, 6}, {{"t", {.size = 2}}, {"t", {.size = 3}}}, "two lengths, 2 and 3", NULL},
    {REARRANGE, "b (t c) -> t b c", 2, {2, 6}, {{"t", {.size = -2}}}, "axis t is given -2", NULL},
    {REARRANGE, "b (t c) -> t b c", 2, {2, 6}, {{"t", {.size = 0}}}, "6 not divisible by 0", NULL},
    {REARRANGE, "b t -> b", 2, {2, 3}, {{0}}, "axis \"t\" is on the left side only", "t ->"},
    {REARRANGE, "b t -> b t c", 2, {2, 3}, {{0}}, "unknown axis \"c\"", "c"},
    {REARRANGE, "b b -> b", 2, {2, 3}, {{0}}, "axis \"b\" is named twice", "b ->"},
    {REARRANGE, "b t -> b b t", 2, {2, 3}, {{0}}, "axis \"b\" is named twice", NULL},
    {REARRANGE, "b (t -> b t", 2, {2, 3}, {{0}}, "unbalanced parentheses: this one is never closed", "("},
    {REARRANGE, "b t) -> b t", 2, {2, 3}, {{0}}, "unbalanced parentheses: nothing to close", ")"},
    {REARRANGE, "((b) t) -> b t", 1, {6}, {{0}}, "parentheses inside parentheses", "(b)"},
    {REARRANGE, "b t", 2, {2, 3}, {{0}}, "no ->", NULL},
    {REARRANGE, "", 2, {2, 3}, {{0}}, "no ->", NULL},
    {REARRANGE, "b t -> t b -> b", 2, {2, 3}, {{0}}, "a second ->", "-> b"},
    {REARRANGE, "b t c -> t b c", 2, {2, 3}, {{0}}, "has 2 axes, but the left side names 3", NULL},
    {REARRANGE, "b -> b", 2, {2, 3}, {{0}}, "has 2 axes, but the left side names 1", NULL},
    {REARRANGE, "b ... c t -> b ... c t", 2, {2, 3}, {{0}}, "names at least 3", NULL},
    {REARRANGE, "b t -> b ... t", 2, {2, 3}, {{0}}, "... on the right side only", "..."},
    {REARRANGE, "b ... -> b", 2, {2, 3}, {{0}}, "... on the left side only", "..."},
    {REARRANGE, "(b ...) -> b ...", 2, {2, 3}, {{0}}, "... inside parentheses", "..."},
    {REARRANGE, "... b ... -> b ...", 2, {2, 3}, {{0}}, "a second ...", NULL},
    {REARRANGE, "b 2 -> b", 2, {2, 2}, {{0}}, "an unnamed axis of size 2; only 1", "2"},
    {REARRANGE, "b t -> b t 3", 2, {2, 2}, {{0}}, "an unnamed axis of size 3; only 1", "3"},
    {REARRANGE, "b 1 -> b", 2, {2, 3}, {{0}}, "axis 1 is 3 in the tensor, but 1 was asked for", "1"},
    {REARRANGE, "b () -> b", 2, {2, 3}, {{0}}, "axis () is 3 in the tensor", "()"},
    {REARRANGE, "_ t -> t _", 2, {2, 3}, {{0}}, "'_' is no name", "_"},
    {REARRANGE, "_b t -> t _b", 2, {2, 3}, {{0}}, "neither starts nor ends with an underscore", "_b t"},
    {REARRANGE, "b_ t -> t b_", 2, {2, 3}, {{0}}, "neither starts nor ends with an underscore", "b_ t"},
    {REARRANGE, "2b t -> t", 2, {2, 3}, {{0}}, "a name starts with a letter", "2b"},
    {REARRANGE, "b, t -> t b", 2, {2, 3}, {{0}}, "',' has no meaning here", ","},
    {REARRANGE, "b * -> * b", 2, {2, 3}, {{0}}, "* has no meaning here", "*"},
    {REARRANGE, "b/t -> t b", 2, {2, 3}, {{0}}, "'/' has no meaning", "/"},
    {REARRANGE, "b . t -> t b", 2, {2, 3}, {{0}}, "an ellipsis is three", "."},
    {REARRANGE, "b 99999999999999999999 -> b", 2, {2, 3}, {{0}}, "beyond 2^63", "999"},
    {REARRANGE, "(a b c) (d e f) (g h i) -> a b c d e f g h i", 3, {8, 8, 8}, {{0}}, "are unknown", NULL},
    {SUM, "b t -> b c", 2, {2, 3}, {{0}}, "unknown axis \"c\"", "c"},
    {SUM, "b t -> b 2", 2, {2, 3}, {{0}}, "a reduction makes no new axes", "2"},
    {SUM, "b (t 2) -> b t", 2, {2, 3}, {{0}}, "3 not divisible by 2", "(t 2)"},
    {SUM, "b 0 -> b", 2, {2, 0}, {{0}}, "an unnamed axis of size 0", "0"},
    {REPEAT, "b t -> b t c", 2, {2, 3}, {{0}}, "new axis \"c\" needs a length", "c"},
    {REPEAT, "b t -> b", 2, {2, 3}, {{0}}, "axis \"t\" is on the left side only", "t ->"},
    {REPEAT, "b 3 -> b", 2, {2, 3}, {{0}}, "an unnamed axis of size 3", "3"},
    {REPEAT, "b t -> b t 2 2 2 2 2 2 2", 2, {2, 3}, {{0}}, "too many axes", NULL},
    {REPEAT, "b t -> b t 0", 2, {2, 3}, {{0}}, "an unnamed axis of size 0", "0"},
    {REPEAT, "b t -> b t 1 1 1 1 1 1 1", 2, {2, 3}, {{0}}, "too many axes", NULL},
};

static void einops_patterns_are_refused(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    for (int64_t i = 0; i < COUNT(wrong_einops); i++) {
        tl_tensor *x = sized(ctx, wrong_einops[i].ndim, wrong_einops[i].size), *y = NULL;
        const char *pattern = wrong_einops[i].pattern;
        int n = wrong_einops[i].length[1].name ? 2 : wrong_einops[i].length[0].name ? 1 : 0;
        if (wrong_einops[i].call == REARRANGE)
            y = tl_rearrange(x, pattern, wrong_einops[i].length, n);
        else if (wrong_einops[i].call == SUM)
            y = tl_reduce(x, pattern, TL_REDUCE_SUM, wrong_einops[i].length, n);
        else
            y = tl_repeat_axes(x, pattern, wrong_einops[i].length, n);
        refused(ctx, y, pattern, wrong_einops[i].words, wrong_einops[i].at);
    }
    tl_tensor *x = SIZED(ctx, 2, 3), *wide = SIZED(ctx, 2, 2, 2, 2, 2, 2, 2, 4);
    refused(ctx, tl_reduce(x, "b t -> b", (tl_reduce_op)9, TL_NO_LENGTHS), "", "none of sum, mean", NULL);
    refused(ctx, tl_rearrange(wide, "a b c d e f g (h i) -> a b c d e f g h i", TL_LENGTHS({"h", {.size = 2}})), "",
            "too many axes", NULL);
    refused(ctx, tl_rearrange(x, "b t -> t b", TL_LENGTHS({NULL, {.size = 2}})), "", "has no name", NULL);
    tl_ctx_free(ctx);
}

/* A message with a place in it, whole. */
static void messages_point_at_the_place(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_tensor *x = SIZED(ctx, 2, 42528);
    assert_null(tl_rearrange_(x, "b (h d) -> b h d", TL_LENGTHS({"h", {.size = 21}}), "model.c:12"));
    assert_string_equal(tl_ctx_error(ctx)->message,
                        "rearrange (model.c:12): axis (h d) is 42528: 42528 not divisible by 21, the lengths given\n"
                        "    b (h d) -> b h d\n"
                        "      ^~~~~");
    tl_ctx_clear_error(ctx);
    char pattern[700]; /* a place far to the right is still seen */
    memset(pattern, ' ', sizeof pattern);
    memcpy(pattern + 600, "b ? -> b", 9);
    assert_null(tl_rearrange(x, pattern, TL_NO_LENGTHS));
    const char *message = tl_ctx_error(ctx)->message;
    assert_non_null(strstr(message, "b ? -> b"));
    const char *line = strstr(message, "\n    "), *mark = strrchr(message, '\n');
    assert_int_equal(strcspn(line + 1, "?"), strcspn(mark + 1, "^"));
    tl_ctx_free(ctx);
}

static void names_are_given(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    char text[200];
    tl_tensor *x = SIZED(ctx, 2, 3, 8);
    tl_tensor *y = tl_rearrange(x, "batch seq (heads dim) -> batch heads seq dim", TL_LENGTHS({"heads", {.size = 2}}));
    assert_string_equal(tl_tensor_text(y, text, sizeof text),
                        "f32[batch 2, heads 2, seq 3, dim 4] strides [24, 4, 8, 1]");
    assert_true(tl_tensor_shares_storage(x, y));
    tl_tensor *z =
        tl_einsum(ctx, "batch heads seq dim, batch heads key dim -> batch heads seq key", ((tl_tensor *[]){y, y}), 2);
    assert_string_equal(tl_tensor_text(z, text, sizeof text), "f32[batch 2, heads 2, seq 3, key 3]");
    z = tl_einsum(ctx, "bhsd->bshd", &y, 1); /* letters leave the names that are there */
    assert_string_equal(tl_tensor_text(z, text, sizeof text), "f32[batch 2, seq 3, heads 2, dim 4]");
    z = tl_reduce(y, "b h ... -> b (h ...)", TL_REDUCE_SUM, TL_NO_LENGTHS);
    assert_string_equal(tl_tensor_text(z, text, sizeof text), "f32[b 2, (h ...) 24]");
    z = tl_repeat_axes(x, "b t d -> b t d r", TL_LENGTHS({"r", {.size = 5}}));
    assert_string_equal(tl_tensor_text(z, text, sizeof text), "f32[b 2, t 3, d 8, r 5] strides [24, 8, 1, 0]");
    assert_true(tl_tensor_shares_storage(x, z)); /* stretched, not copied */
    assert_false(tl_tensor_shares_storage(x, tl_repeat_axes(x, "b t d -> b (t r) d", TL_LENGTHS({"r", {.size = 5}}))));
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

static void packing_goes_there_and_back(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(tl_kernels_portable(), false);
    float value[24], got[24];
    for (int i = 0; i < 24; i++)
        value[i] = (float)i;
    tl_tensor *a = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(2), D(3)), TL_DATA, value, 12);
    tl_tensor *b = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(3)), TL_DATA, value + 12, 6);
    tl_tensor *c = tl_from_data(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(1), D(1), D(3)), TL_DATA, value + 18, 6);
    tl_shape packed[3];
    tl_tensor *all = tl_pack(((tl_tensor *[]){a, b, c}), 3, "n * c", packed);
    assert_non_null(all);
    assert_int_equal(tl_tensor_size(all, 1), 4); /* 2 + 1 + 1 */
    assert_int_equal(packed[0].ndim, 1);
    assert_int_equal(packed[1].ndim, 0);
    assert_int_equal(packed[2].ndim, 2);
    assert_string_equal(tl_tensor_shape(all)->dim[2].axis, "c");
    assert_int_equal(tl_tensor_read(all, got, sizeof got), TL_OK);
    static const float want[] = {0, 1, 2, 3, 4, 5, 12, 13, 14, 18, 19, 20, 6, 7, 8, 9, 10, 11, 15, 16, 17, 21, 22, 23};
    assert_memory_equal(got, want, sizeof want);
    tl_tensor *out[3], *in[] = {a, b, c};
    packed[0].dim[0].size = -1; /* found from the rest */
    assert_int_equal(tl_unpack(all, packed, 3, "n * c", out), TL_OK);
    for (int i = 0; i < 3; i++) {
        float x[12], y[12];
        size_t bytes = (size_t)tl_tensor_count(in[i]) * sizeof(float);
        assert_int_equal(tl_tensor_ndim(out[i]), tl_tensor_ndim(in[i]));
        assert_int_equal(tl_tensor_read(in[i], x, bytes), TL_OK);
        assert_int_equal(tl_tensor_read(out[i], y, bytes), TL_OK);
        assert_memory_equal(x, y, bytes);
        assert_true(tl_tensor_shares_storage(out[i], all));
    }
    tl_tensor *odd = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, D(2), D(4)), TL_DATA);
    refused(ctx, tl_pack(((tl_tensor *[]){a, odd}), 2, "n * c", packed), "n * c",
            "axis c is 4 in tensor 1, but 3 in tensor 0", "c");
    refused(ctx, tl_pack(((tl_tensor *[]){a, b}), 2, "n c", packed), "n c", "no * for the axes", NULL);
    refused(ctx, tl_pack(((tl_tensor *[]){a, b}), 2, "n * * c", packed), "n * * c", "a second *", "* c");
    refused(ctx, tl_pack(((tl_tensor *[]){a, b}), 2, "n m k * c", packed), "n m k * c", "names at least 4", NULL);
    refused(ctx, tl_pack(((tl_tensor *[]){a, b}), 2, "n (m *) c", packed), "n (m *) c", "parentheses have no", "(");
    refused(ctx, tl_pack(((tl_tensor *[]){a, b}), 2, "n -> *", packed), "n -> *", "'->' has no meaning", "->");
    packed[0] = (tl_shape){.ndim = 1, .dim = {D(9)}};
    tl_unpack(all, packed, 1, "n * c", out);
    refused(ctx, out[0], "n * c", "the packed axis has 4, but the shapes take 9", "*");
    packed[0] = packed[1] = (tl_shape){.ndim = 1, .dim = {D(-1)}};
    tl_unpack(all, packed, 2, "n * c", out);
    refused(ctx, out[0], "n * c", "one -1 at most", NULL);
    tl_unpack(all, packed, 1, "n * c d", out);
    refused(ctx, out[0], "n * c d", "has 3 axes, but the pattern names 4", NULL);
    tl_ctx_free(ctx);
}

static void shapes_are_checked(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_axes axes = {0};
    tl_tensor *q = SIZED(ctx, 2, 5, 12, 64), *k = SIZED(ctx, 2, 7, 8, 64), *w = SIZED(ctx, 768, 100);
    assert_int_equal(tl_check_shape(&axes, q, "batch seq heads head_dim"), TL_OK);
    assert_int_equal(tl_axes_dim(&axes, "heads").size, 12);
    assert_int_equal(tl_axes_dim(&axes, "key").size, -1);
    assert_string_equal(tl_tensor_shape(q)->dim[3].axis, "head_dim");
    assert_int_equal(tl_check_shape(&axes, w, "(heads head_dim) width"), TL_OK);
    assert_int_equal(tl_axes_dim(&axes, "width").size, 100);
    assert_int_equal(tl_check_shape(&axes, q, "... head_dim"), TL_OK);
    assert_int_equal(tl_check_shape(&axes, q, "batch ... 64"), TL_OK);
    assert_int_equal(tl_check_shape(&axes, q, "_ _ 12 _"), TL_OK);
    assert_int_equal(tl_check_shape(&axes, SIZED(ctx, 36, 2), "(heads three) batch"), TL_OK);
    assert_int_equal(tl_axes_dim(&axes, "three").size, 3);
    assert_int_equal(tl_check_shape(&axes, SIZED(ctx, 4, 4), "n n"), TL_OK);
    tl_check_shape(&axes, k, "batch key heads head_dim");
    refused(ctx, NULL, "batch key heads head_dim", "axis heads is 8, but 12 in q", "heads");
    tl_check_shape(&axes, k, "batch key heads head_dim");
    refused(ctx, NULL, "batch key heads head_dim", "k is f32[batch 2, key 7, 8, 64]", "heads");
    tl_check_shape(&axes, w, "batch seq width");
    refused(ctx, NULL, "batch seq width", "w is f32[(heads head_dim) 768, width 100] with 2 axes; the pattern names 3",
            NULL);
    tl_check_shape(&axes, w, "700 width");
    refused(ctx, NULL, "700 width", "axis 0 is 768, not 700", "700");
    tl_check_shape(&axes, SIZED(ctx, 2, 3), "m m");
    refused(ctx, NULL, "m m", "axis m is 3, but 2 in SIZED", NULL);
    tl_check_shape(&axes, w, "(heads batch) width");
    refused(ctx, NULL, "(heads batch) width", "axis (heads batch) is 768, but the names multiply to 24", "(");
    /* what a message quotes, and what an axis is called, stays on its line */
    assert_int_equal(tl_check_shape(&axes, w, "(heads\t\n head_dim) width"), TL_OK);
    assert_string_equal(tl_tensor_shape(w)->dim[0].axis, "(heads head_dim)");
    tl_check_shape(&axes, w, "(heads\n\tbatch) width");
    refused(ctx, NULL, "(heads\n\tbatch) width", "axis (heads  batch) is 768, but the names multiply to 24", "(");
    tl_check_shape(&axes, w, "(five heads seq) width");
    refused(ctx, NULL, "(five heads seq) width", "is 768, not divisible by 60", "(");
    tl_check_shape(&axes, w, "(u v) width");
    refused(ctx, NULL, "(u v) width", "neither u nor v is known yet", "v");
    tl_check_shape(&axes, w, "a -> b");
    refused(ctx, NULL, "a -> b", "'->' has no meaning", "->");
    char name[16];
    for (int i = 0; axes.n < TL_MAX_AXES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(tl_check_shape(&axes, SIZED(ctx, 1), name), TL_OK);
    }
    tl_check_shape(&axes, SIZED(ctx, 1), "one_more");
    refused(ctx, NULL, "one_more", "more than 32 names", "one");
    tl_ctx_free(ctx);
}

static void nothing_in_gives_nothing_out(void **state) {
    (void)state;
    tl_ctx *ctx = new_ctx(NULL, false);
    tl_tensor *none = NULL, *out[1];
    tl_shape packed[1] = {{0}};
    tl_axes axes = {0};
    assert_null(tl_einsum(ctx, "i->i", &none, 1));
    assert_null(tl_rearrange(none, "a -> a", TL_NO_LENGTHS));
    assert_null(tl_reduce(none, "a -> a", TL_REDUCE_SUM, TL_NO_LENGTHS));
    assert_null(tl_repeat_axes(none, "a -> a", TL_NO_LENGTHS));
    assert_null(tl_pack(&none, 1, "*", packed));
    assert_int_not_equal(tl_unpack(none, packed, 1, "*", out), TL_OK);
    assert_int_not_equal(tl_check_shape(&axes, none, "a"), TL_OK);
    assert_int_equal(tl_ctx_status(ctx), TL_OK);
    tl_ctx_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(einsum_patterns_are_refused),  cmocka_unit_test(einops_patterns_are_refused),
        cmocka_unit_test(messages_point_at_the_place),  cmocka_unit_test(names_are_given),
        cmocka_unit_test(packing_goes_there_and_back),  cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(nothing_in_gives_nothing_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
