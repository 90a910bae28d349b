/* cli/groups.h: parameter groups, from the command line and in what is printed. */
#ifndef CLI_GROUPS_H
#define CLI_GROUPS_H

#include "tally/run.h"
#include "verb.h"

/* --groups, or the groups that `file` said ("": none), into the optimizer's options, which are complete but for them; patterns
 * live as long as the program. Exit status. */
int tl_cli_groups(const tl_cli *cli, const char *file, const char *text, tl_optimizer_options *optimizer);
/* Why a plan was not made. What only shows with the model's names is said of --groups, or of the file. Exit status. */
int tl_groups_failed(const tl_cli *cli, const char *file, tl_error *error);
/* [{"match": "*.bias", "weight-decay": 0, "frozen": false, …}, …] at "groups" of a task's file, or such a text: as a text. */
tl_status tl_groups_from_file(const tl_run_file *file, const char *path, char *text, size_t size, tl_error *error);

/* One row: "wte.*" frozen; the default's decay. */
char *tl_group_text(const tl_optimizer_options *optimizer, const tl_plan_group *group, char *text, size_t size);
/* One item a row of the plan's groups; "groups": [{"match", "tensors", "parameters", …}] into an object that is open. */
void tl_groups_out(const tl_cli *cli, const tl_optimizer_options *optimizer, const tl_plan *plan);
void tl_groups_json(tl_json *json, const tl_optimizer_options *optimizer, const tl_plan *plan);

#endif
