/* Where 6·(data)·(parameters) comes from: two linear layers, x[B,D] → h1[B,D] → h2[B,K]. Forward is one product a weight,
 * backward two: one for the weight's gradient, one for the layer's input. The ledger counts what runs.
 *
 *     cc linear_model.c $(pkg-config --cflags --libs tally)
 */
#include <stdio.h>

#include <tally/account.h>
#include <tally/grad.h>
#include <tally/ops.h>

enum { B = 1024, D = 256, K = 64 };
#define P ((long long)D * D + (long long)D * K)

static long long matmul_flops(const tl_ctx *ctx, tl_phase phase) {
    tl_counts counts;
    tl_ledger_counts(ctx, phase, &counts);
    return (long long)counts.matmul;
}

/* On meta: the same code, no arithmetic. input_wants_gradient: as if x came from another layer. */
static int run(bool input_wants_gradient) {
    tl_error error = {TL_OK, ""};
    tl_ctx *ctx = tl_ctx_new(NULL, &error);
    if (!ctx) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    tl_tensor *x = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(B), tl_dim_of(D)), TL_DATA);
    tl_tensor *w1 = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(D), tl_dim_of(D)), TL_PARAM);
    tl_tensor *w2 = tl_empty(ctx, TL_F32, TL_SHAPE(ctx, tl_dim_of(D), tl_dim_of(K)), TL_PARAM);
    tl_tensor_require_grad(x, input_wants_gradient);
    tl_tensor_require_grad(w1, true);
    tl_tensor_require_grad(w2, true);

    tl_ledger_step_begin(ctx);
    tl_record(ctx, true);
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_tensor *h1 = tl_matmul(x, w1);
    tl_tensor *h2 = tl_matmul(h1, w2);
    tl_tensor *loss = tl_mean(tl_mul(h2, h2), NULL, 0, false);
    tl_phase_set(ctx, TL_PHASE_BACKWARD);
    tl_status status = tl_backward(ctx, loss, 1.0);

    long long forward = matmul_flops(ctx, TL_PHASE_FORWARD), backward = matmul_flops(ctx, TL_PHASE_BACKWARD);
    long long of_x = input_wants_gradient ? 0 : 2LL * B * D * D;
    printf("the input wants %s gradient\n", input_wants_gradient ? "a" : "no");
    printf("  forward   %10lld = 2·B·P\n", forward);
    printf("  backward  %10lld = 4·B·P%s\n", backward, of_x ? " − 2·B·D²: nobody asked for the gradient of x" : "");
    printf("  together  %10lld = 6·B·P%s\n", forward + backward, of_x ? " − 2·B·D²" : "");
    bool right = forward == 2 * B * P && backward == 4 * B * P - of_x;
    if (status != TL_OK)
        fprintf(stderr, "%s\n", tl_ctx_error(ctx)->message);
    tl_ctx_free(ctx);
    return status != TL_OK || !right;
}

int main(void) {
    printf("B = %d, D = %d, K = %d, P = D² + D·K = %lld\n", B, D, K, P);
    return run(true) || run(false);
}
