/* cli/model_out.h: a model description for people, shared by tally models and tally inspect. */
#ifndef CLI_MODEL_OUT_H
#define CLI_MODEL_OUT_H

#include "tally/config.h"
#include "verb.h"

/* What the model is, where each value came from, what was assumed and ignored. `title` begins the first line. */
void tl_model_out(const tl_cli *cli, const tl_model *model, const char *title);
/* A grid of one row per model, for tally models and for csv, md and json. */
tl_grid *tl_model_grid_new(void);
void tl_model_grid_row(tl_grid *grid, const tl_model *model, const char *note);
/* "description", "sources", "assumed" and "ignored" into the open object. */
void tl_model_json_notes(tl_json *json, const tl_model *model);

#endif
