/* cli/lora.c: finetuning with adapters, from the command line. */
#include "lora.h"

#include <stdlib.h>
#include <string.h>

static bool is_given(const char *text) { return text && text[0]; }

static int base_of(const tl_cli *cli, const tl_lora_texts *t, tl_lora_base *base) {
    const bool quantized = is_given(t->quantized_rank);
    *base = quantized ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN;
    if (!is_given(t->base))
        return TL_EXIT_OK;
    for (int b = TL_LORA_PLAIN; b <= TL_LORA_NF4_TWICE; b++)
        if (strcmp(t->base, tl_lora_base_name((tl_lora_base)b)) == 0) {
            *base = (tl_lora_base)b;
            if (quantized && b < TL_LORA_NF4)
                return tl_usage(cli, "--qlora is over 4-bit weights: --lora %s --lora-base %s is what that would be",
                                t->quantized_rank, t->base);
            return TL_EXIT_OK;
        }
    return tl_usage(cli, "--lora-base \"%.40s\": plain, int8, nf4 and nf4-dq would work", t->base);
}

int tl_cli_lora(const tl_cli *cli, const tl_lora_texts *t, tl_lora_options *lora) {
    const struct {
        const char *name, *text;
    } rest[] = {{"alpha", t->alpha},
                {"dropout", t->dropout},
                {"targets", t->targets},
                {"base", t->base},
                {"train", t->trained}};
    tl_error error = {TL_OK, ""};
    *lora = (tl_lora_options){.rank = 0};
    if (is_given(t->rank) && is_given(t->quantized_rank))
        return tl_usage(cli, "--lora %s and --qlora %s: the second is the first over 4-bit weights; one of them",
                        t->rank, t->quantized_rank);
    const char *rank = is_given(t->rank) ? t->rank : t->quantized_rank;
    for (size_t i = 0; !is_given(rank) && i < sizeof rest / sizeof rest[0]; i++)
        if (is_given(rest[i].text))
            return tl_usage(cli, "--lora-%s changes nothing without --lora RANK or --qlora RANK", rest[i].name);
    if (!is_given(rank))
        return TL_EXIT_OK;
    const char *name = is_given(t->rank) ? "lora" : "qlora";
    if (tl_parse_size(rank, &lora->rank, &error) != TL_OK)
        return tl_usage(cli, "--%s: %s", name, error.message);
    if (lora->rank < 1 || lora->rank > INT32_MAX)
        return tl_usage(cli, "--%s %s: a rank of 1 to 2147483647 would work", name, rank);
    if (is_given(t->alpha) && tl_parse_number(t->alpha, 0, 1e9, &lora->alpha, &error) != TL_OK)
        return tl_usage(cli, "--lora-alpha: %s", error.message);
    if (is_given(t->alpha) && lora->alpha <= 0)
        return tl_usage(cli, "--lora-alpha %s: adapters that count nothing are never trained; above 0", t->alpha);
    if (is_given(t->dropout) && tl_parse_number(t->dropout, 0, 1, &lora->dropout, &error) != TL_OK)
        return tl_usage(cli, "--lora-dropout: %s", error.message);
    if (lora->dropout >= 1)
        return tl_usage(cli, "--lora-dropout %s: it lies below 1", t->dropout);
    lora->targets = is_given(t->targets) ? t->targets : NULL;
    lora->trained = is_given(t->trained) ? t->trained : NULL;
    const int status = base_of(cli, t, &lora->base);
    if (status == TL_EXIT_OK && tl_lora_check(lora, &error) != TL_OK)
        return tl_usage(cli, "%s", error.message);
    return status;
}

int tl_cli_lora_typed(const tl_cli *cli, tl_lora_options *lora) {
    const tl_option_value *at = cli->options.at;
    const tl_lora_texts texts = {at[TL_OPTION_LORA].text,         at[TL_OPTION_QLORA].text,
                                 at[TL_OPTION_LORA_ALPHA].text,   at[TL_OPTION_LORA_DROPOUT].text,
                                 at[TL_OPTION_LORA_TARGETS].text, at[TL_OPTION_LORA_BASE].text,
                                 at[TL_OPTION_LORA_TRAIN].text};
    return tl_cli_lora(cli, &texts, lora);
}

void tl_cli_lora_text(const tl_lora_options *lora, char *text, size_t size) {
    char alpha[48] = "", dropout[48] = "";
    text[0] = '\0';
    if (lora->rank == 0)
        return;
    if (lora->alpha > 0)
        snprintf(alpha, sizeof alpha, " --lora-alpha %g", lora->alpha);
    if (lora->dropout > 0)
        snprintf(dropout, sizeof dropout, " --lora-dropout %g", lora->dropout);
    snprintf(text, size, " --lora %lld%s%s --lora-base %s%s%s%s%s", (long long)lora->rank, alpha, dropout,
             tl_lora_base_name(lora->base), lora->targets ? " --lora-targets " : "", lora->targets ? lora->targets : "",
             lora->trained ? " --lora-train " : "", lora->trained ? lora->trained : "");
}

/* Targets hold commas and come last. */
void tl_cli_lora_note(const tl_lora_options *lora, char *text, size_t size) {
    snprintf(text, size, "rank=%lld,alpha=%.17g,base=%s,targets=%s", (long long)lora->rank, lora->alpha,
             tl_lora_base_name(lora->base), lora->targets ? lora->targets : "");
}

bool tl_cli_lora_from_note(const char *text, tl_lora_options *lora, char targets[TL_LORA_TARGETS]) {
    char base[8], alpha[32];
    long long rank = 0;
    int at = 0;
    *lora = (tl_lora_options){.rank = 0};
    if (sscanf(text, "rank=%lld,alpha=%31[^,],base=%7[^,],targets=%n", &rank, alpha, base, &at) != 3 || at == 0 ||
        rank < 1 || rank > INT32_MAX || strlen(text + at) >= TL_LORA_TARGETS)
        return false;
    for (int b = TL_LORA_NF4_TWICE; b >= TL_LORA_PLAIN; b--)
        if (strcmp(base, tl_lora_base_name((tl_lora_base)b)) == 0) {
            snprintf(targets, TL_LORA_TARGETS, "%s", text + at);
            *lora = (tl_lora_options){.rank = rank, .targets = targets, .base = (tl_lora_base)b};
            return tl_parse_number(alpha, 0, 1e30, &lora->alpha, NULL) == TL_OK && tl_lora_check(lora, NULL) == TL_OK;
        }
    return false;
}
