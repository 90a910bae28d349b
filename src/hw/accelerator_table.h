/* hw/accelerator_table.h: what tools/gen_hardware.sh makes of
 * hardware/accelerators.csv and hardware/aliases.csv. */
#ifndef TALLY_HW_ACCELERATOR_TABLE_H
#define TALLY_HW_ACCELERATOR_TABLE_H

#include "tally/hw.h"

typedef struct tl_accelerator_alias {
    const char *alias;
    int index;        /* into tl_accelerator_table */
    const char *note; /* what to tell the user, or NULL */
} tl_accelerator_alias;

extern const tl_accelerator tl_accelerator_table[];
extern const int tl_accelerator_table_count;
extern const tl_accelerator_alias tl_accelerator_aliases[];
extern const int tl_accelerator_alias_count;

#endif
