/* cli/model_facts.h: what a model computes beside its sizes. */
#ifndef CLI_MODEL_FACTS_H
#define CLI_MODEL_FACTS_H

#include "tally/model.h"
#include "verb.h"

/* Lines under a model's sizes: norm, positions, attention, MLP, ends. */
void tl_model_facts_out(const tl_cli *cli, const tl_model *model);
/* "description": every field that has a value; "not_computed" where there is such a thing. Into the open object. */
void tl_model_facts_json(tl_json *json, const tl_model *model);
tl_positions tl_model_positions(const tl_model *model);

#endif
