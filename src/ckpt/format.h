/* ckpt/format.h: the layout of a checkpoint file, as docs/checkpoint.md describes it. Numbers are little-endian. */
#ifndef TALLY_CKPT_FORMAT_H
#define TALLY_CKPT_FORMAT_H

#include "tally/ckpt.h"

#define TL_CKPT_MAGIC "TALLYCK\n"
#define TL_CKPT_VERSION 1
#define TL_CKPT_ALIGN 64 /* values of each tensor start at a multiple of this */

enum {
    TL_CKPT_FIXED = 112, /* bytes before the table */
    TL_CKPT_ENTRY = 112, /* bytes of an entry before its name: see put_entry */
    TL_CKPT_NAME = 256,  /* bytes of a name, at most */
    TL_CKPT_CHECKSUM = 8,
    TL_CKPT_LARGEST_HEADER = 64 << 20
};

/* What a tensor is to the parameter it is named after. */
typedef enum tl_ckpt_role {
    TL_CKPT_PARAMETER,
    TL_CKPT_MASTER,
    TL_CKPT_STATE_0,
    TL_CKPT_STATE_1,
    TL_CKPT_ROLES
} tl_ckpt_role;
const char *tl_ckpt_role_name(tl_ckpt_role role);

typedef struct tl_ckpt_head {
    uint32_t version, tensors;
    uint64_t header_bytes; /* all before the values: fixed part, table, checksum, filling */
    uint64_t file_bytes;
    uint32_t states; /* state tensors of a parameter */
    tl_ckpt_state state;
} tl_ckpt_head;

/* A tensor of the table and where its values lie. */
typedef struct tl_ckpt_entry {
    const char *name;
    tl_ckpt_role role;
    const tl_tensor *tensor;
    uint64_t offset, bytes;
} tl_ckpt_entry;

/* The tensors of a net and optimizer in the order of the file, one call each: false ends the list. `at` counts from 0. */
typedef struct tl_ckpt_list {
    const tl_parameter *parameters;
    int count;
    const tl_optimizer *optimizer;
    int index;
    int role;
    uint64_t offset; /* where the next tensor's values go */
} tl_ckpt_list;
void tl_ckpt_list_begin(tl_ckpt_list *list, const tl_net *net, const tl_optimizer *optimizer, uint64_t header_bytes);
bool tl_ckpt_list_next(tl_ckpt_list *list, tl_ckpt_entry *entry);

/* Header of exactly these tensors, checksum included; allocated with malloc. NULL with *error filled. */
unsigned char *tl_ckpt_header_make(const tl_net *net, const tl_optimizer *optimizer, const tl_ckpt_state *state,
                                   tl_ckpt_head *head, tl_error *error);
/* FNV-1a, 64 bit (Fowler, Noll, Vo), over 8-byte words and then the bytes that are left. `hash` goes on from before. */
uint64_t tl_ckpt_hash(uint64_t hash, const void *data, size_t bytes);
#define TL_CKPT_HASH UINT64_C(0xCBF29CE484222325)

uint64_t tl_ckpt_get(const unsigned char *at, int bytes);
void tl_ckpt_put(unsigned char *at, int bytes, uint64_t value);

#endif
