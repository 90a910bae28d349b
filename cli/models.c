/* cli/models.c: tally models, the catalogue: the list, or all about one model. */
#include <string.h>

#include "model_out.h"

static int list(const tl_cli *cli) {
    tl_grid *grid = tl_model_grid_new();
    int status = TL_EXIT_OK;
    for (int i = 0; i < tl_catalogue_count() && status == TL_EXIT_OK; i++) {
        tl_model model;
        tl_error error = {TL_OK, ""};
        if (tl_catalogue_model(tl_catalogue_name(i), &model, &error) != TL_OK)
            status = tl_failed(cli, &error);
        else
            tl_model_grid_row(grid, &model, tl_catalogue_note(i));
    }
    if (status == TL_EXIT_OK)
        status = tl_grid_print(cli, grid, "models");
    tl_grid_free(grid);
    if (status == TL_EXIT_OK && cli->format == TL_FORMAT_TABLE) {
        tl_out(cli, "\n");
        tl_out_wrapped(cli, 0, "",
                       "active: what a token passes of a mixture of experts; N layers, D width, C context. `tally "
                       "models NAME' shows "
                       "all of one and where each value came from.");
    }
    return status;
}

static int run(tl_cli *cli) {
    tl_model model;
    tl_error error = {TL_OK, ""};
    if (!cli->n_arguments)
        return list(cli);
    if (tl_model_find(cli->arguments[0], &model, &error) != TL_OK)
        return tl_failed(cli, &error);
    const char *note = NULL;
    for (int i = 0; i < tl_catalogue_count(); i++)
        if (strcmp(tl_catalogue_name(i), model.name) == 0)
            note = tl_catalogue_note(i);
    if (cli->format == TL_FORMAT_TABLE) {
        tl_model_out(cli, &model, model.name);
        if (note && note[0])
            tl_out_item(cli, "note", "%s", note);
        return TL_EXIT_OK;
    }
    tl_grid *grid = tl_model_grid_new();
    tl_model_grid_row(grid, &model, note);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_json_key(json, "models");
            tl_json_array(json);
            tl_json_object(json);
            tl_grid_json_row(grid, 0, json);
            tl_model_json_notes(json, &model);
            tl_json_end(json);
            tl_json_end(json);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print(cli, grid, "models");
    }
    tl_grid_free(grid);
    return status;
}

const tl_verb tl_verb_models = {
    .name = "models",
    .summary = "the catalogue of models, and where each value of one came from",
    .group = TL_GROUP_LOOKUP,
    .arguments = "[MODEL]",
    .words = NULL,
    .details = "MODEL is a name of the catalogue, a Hugging Face config.json, or a folder\n"
               "holding one.",
    .takes = 0,
    .own = NULL,
    .min_arguments = 0,
    .max_arguments = 1,
    .run = run,
};
