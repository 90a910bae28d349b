/* Any bytes at all as a safetensors file, or, by the first byte, as the index of a model in several files: refused with a
 * message, or read; never a crash, a hang or a large allocation. What is accepted must be consistent: ranges that tile the
 * file, and names that are found again. Two of three inputs get their first 8 bytes from their own length, so that the
 * header is reached. One of eight is also loaded as the weights of a small mixture of experts, with latent
 * attention or, every other, with experts that may come in MXFP4. */
#include "config/tensor_header.h"
#include "tally/config.h"
#include "tally/cpu.h"
#include "tally/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const tl_error *error) {
    if (error->status == TL_OK || error->message[0] == '\0')
        abort();
    for (const char *c = error->message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
}

static void check_file(const tl_safetensors *f) {
    tl_error error = {TL_OK, ""};
    int64_t at = tl_safetensors_header_bytes(f);
    for (int64_t i = 0; i < tl_safetensors_count(f); i++) {
        const tl_safetensors_tensor *t = tl_safetensors_at(f, i);
        unsigned char byte;
        int64_t count = 1;
        for (int64_t d = 0; d < t->ndim; d++)
            count *= t->dim[d];
        if (t->offset != at || t->bytes < 0 || count != t->count || tl_safetensors_find(f, t->name) != t)
            abort();
        at += t->bytes;
        if (t->bytes > 0 && tl_safetensors_read(f, t, t->bytes - 1, &byte, 1, &error) != TL_OK)
            abort();
    }
    if (at != tl_safetensors_bytes(f))
        abort();
    for (int64_t i = 0; i < tl_safetensors_metadata_count(f); i++)
        if (!tl_safetensors_metadata(f, tl_safetensors_metadata_key(f, i)))
            abort();
}

static const char latent[] =
    "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 1, \"hidden_size\": 4, \"num_attention_heads\": 1, "
    "\"num_key_value_heads\": 1, \"intermediate_size\": 4, \"moe_intermediate_size\": 2, \"vocab_size\": 3, "
    "\"max_position_embeddings\": 8, \"q_lora_rank\": null, \"kv_lora_rank\": 2, \"qk_nope_head_dim\": 2, "
    "\"qk_rope_head_dim\": 2, \"v_head_dim\": 2, \"n_routed_experts\": 2, \"num_experts_per_tok\": 1, "
    "\"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 0, "
    "\"tie_word_embeddings\": true}";
static const char packed[] =
    "{\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 1, \"hidden_size\": 32, \"num_attention_heads\": 1, "
    "\"num_key_value_heads\": 1, \"head_dim\": 2, \"intermediate_size\": 32, \"num_local_experts\": 1, "
    "\"num_experts_per_tok\": 1, \"vocab_size\": 3, \"max_position_embeddings\": 8, \"tie_word_embeddings\": true}";

static tl_net *net_of(const char *config) {
    tl_error error = {TL_OK, ""};
    tl_model model;
    if (tl_config_parse(config, strlen(config), "config.json", &model, &error) != TL_OK)
        abort();
    tl_ctx *ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable(), .threads = 1}, &error);
    tl_net *net = ctx ? tl_net_new(ctx, &model, TL_F32) : NULL;
    if (!net)
        abort();
    return net;
}

static void load(const char *path, bool experts_packed) {
    static tl_net *nets[2];
    tl_error error = {TL_OK, ""};
    tl_weights_report report;
    if (!nets[experts_packed])
        nets[experts_packed] = net_of(experts_packed ? packed : latent);
    if (tl_weights_load(path, nets[experts_packed], &report, &error) != TL_OK)
        check_message(&error);
    else if (report.tensors == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char bytes[1 << 16];
    char path[64];
    tl_error error = {TL_OK, ""};
    if (size < 2 || size > sizeof bytes - 8)
        return 0;
    unsigned kind = data[0];
    data++, size--;
    if (kind % 4 == 3) {
        tl_weight_map map;
        if (tl_weight_map_parse((const char *)data, size, "index", &map, &error) == TL_OK)
            tl_weight_map_free(&map);
        else
            check_message(&error);
        return 0;
    }
    size_t length = size;
    if (kind % 4 != 0) { /* up to the last brace it is header, behind it values */
        const unsigned char *brace = memrchr(data, '}', size);
        size_t header = brace ? (size_t)(brace - data) + 1 : size;
        for (int i = 0; i < 8; i++)
            bytes[i] = (unsigned char)(header >> 8 * i & 255);
        memcpy(bytes + 8, data, size);
        length = size + 8;
    } else {
        memcpy(bytes, data, size);
    }
    int file = memfd_create("safetensors", 0);
    if (file < 0 || write(file, bytes, length) != (ssize_t)length)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    tl_safetensors *f = tl_safetensors_open(path, &error);
    if (f)
        check_file(f);
    else
        check_message(&error);
    tl_safetensors_close(f);
    if (f && kind % 8 == 6)
        load(path, kind % 16 == 14);
    close(file);
    return 0;
}
