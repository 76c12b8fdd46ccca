/* SPDX-License-Identifier: Apache-2.0
 * The options of an operation, by its schema: one rule for all of them. A word that is unknown or there twice is refused. */
#include "ops/call.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void *member_of(tartan_op *op, const tartan_i_option_rule *rule) {
    return (char *)op + rule->member;
}

static void set_flag(void *member, const tartan_i_option_rule *rule, bool value) {
    if (rule->as_real)
        *(double *)member = value;
    else
        *(bool *)member = value;
}

static void set_default(tartan_op *op, const tartan_i_option_rule *rule) {
    void *member = member_of(op, rule);
    switch (rule->kind) {
    case TARTAN_I_OPTION_REAL:
        *(double *)member = rule->value;
        break;
    case TARTAN_I_OPTION_WHOLE:
        *(int64_t *)member = (int64_t)rule->value;
        break;
    case TARTAN_I_OPTION_FLAG:
        set_flag(member, rule, rule->value != 0);
        break;
    case TARTAN_I_OPTION_WORD:
        *(int32_t *)member = (int32_t)rule->value;
        break;
    case TARTAN_I_OPTION_SIZES:
        *(tartan_i_sizes *)member = (tartan_i_sizes){0};
        break;
    case TARTAN_I_OPTION_WINDOWS:
        *(tartan_i_windows *)member = (tartan_i_windows){0};
        break;
    }
}

static bool in_range(const tartan_i_option_rule *rule, double value) {
    return isfinite(value) && (rule->above ? value > rule->low : value >= rule->low) &&
           (rule->below ? value < rule->high : value <= rule->high);
}

/* Whether the text of the value is one. */
static bool set(tartan_op *op, const tartan_i_option_rule *rule, const tartan_i_option *option,
                tartan_i_option_room *room) {
    void *member = member_of(op, rule);
    int64_t whole;
    double real;
    switch (rule->kind) {
    case TARTAN_I_OPTION_REAL:
        if (!tartan_i_option_number(option, &real) || !in_range(rule, real)) return false;
        *(double *)member = real;
        return true;
    case TARTAN_I_OPTION_WHOLE:
        if (!tartan_i_option_whole(option, &whole) || !in_range(rule, (double)whole)) return false;
        *(int64_t *)member = whole;
        return true;
    case TARTAN_I_OPTION_FLAG:
        set_flag(member, rule, tartan_i_option_value_is(option, "1"));
        return tartan_i_option_value_is(option, "1") || tartan_i_option_value_is(option, "0");
    case TARTAN_I_OPTION_WORD:
        for (int32_t i = 0; i < rule->nwords; i++)
            if (tartan_i_option_value_is(option, rule->words[i])) {
                *(int32_t *)member = i;
                return true;
            }
        return false;
    case TARTAN_I_OPTION_SIZES:
        whole = tartan_i_option_wholes(option, room->sizes, TARTAN_I_MAX_SIZES);
        *(tartan_i_sizes *)member = (tartan_i_sizes){room->sizes, whole};
        return whole > 0;
    case TARTAN_I_OPTION_WINDOWS: /* see set_windows */
        break;
    }
    return false;
}

/* Windows say themselves what is wrong with them. */
static tartan_status set_windows(const char *function, tartan_op *op, const tartan_i_option_rule *rule,
                                 const tartan_i_option *option) {
    enum { WINDOWS_TEXT = 512 };
    char text[WINDOWS_TEXT];
    CHECK_IN(function, tartan_i_option_text(option, text, sizeof text), ARGUMENT,
             "options has '%.*s', expected %s to be %s", option->shown, option->word, rule->name,
             rule->range);
    return tartan_i_windows_read(function, text, member_of(op, rule));
}

/* Whether the text may have the option. With `apart`, what is positional is an argument of its own. */
static bool is_named(const tartan_i_schema *schema, int32_t i, bool apart) {
    return !(apart && schema->options[i].positional);
}

/* "epsilon, causal or scale" */
static void list_names(const tartan_i_schema *schema, bool apart, char *text, size_t room) {
    size_t length = 0;
    int32_t left = 0;
    for (int32_t i = 0; i < schema->noptions; i++) left += is_named(schema, i, apart);
    snprintf(text, room, "none");
    for (int32_t i = 0; i < schema->noptions && length < room; i++) {
        if (!is_named(schema, i, apart)) continue;
        const char *between = length == 0 ? "" : left > 1 ? ", " : " or ";
        length += (size_t)snprintf(text + length, room - length, "%s%s", between, schema->options[i].name);
        left--;
    }
}

static tartan_status set_named(const tartan_i_schema *schema, tartan_op *op, bool apart,
                               const tartan_i_option *option, uint64_t *given, tartan_i_option_room *room) {
    enum { NAMES_TEXT = 256 };
    char names[NAMES_TEXT];
    int32_t i = 0;
    while (i < schema->noptions &&
           !(is_named(schema, i, apart) && tartan_i_option_is(option, schema->options[i].name)))
        i++;
    if (i == schema->noptions) {
        list_names(schema, apart, names, sizeof names);
        FAIL_IN(schema->function, ARGUMENT, "options has '%.*s', expected %s", option->shown, option->word,
                names);
    }
    const tartan_i_option_rule *rule = &schema->options[i];
    CHECK_IN(schema->function, !(*given >> i & 1), ARGUMENT, "options has %s twice, expected it once",
             rule->name);
    *given |= UINT64_C(1) << i;
    if (rule->kind == TARTAN_I_OPTION_WINDOWS) return set_windows(schema->function, op, rule, option);
    CHECK_IN(schema->function, set(op, rule, option, room), ARGUMENT,
             "options has '%.*s', expected %s to be %s", option->shown, option->word, rule->name,
             rule->range);
    return TARTAN_OK;
}

/* What follows `beginning` in a text; NULL if it begins otherwise. */
static const char *after(const char *text, const char *beginning) {
    for (; *beginning != '\0'; text++, beginning++)
        if (*text != *beginning) return NULL; /* also at the end of `text` */
    return text;
}

/* The end of a value that a flag or a word may have, which goes to `member`; NULL if it is none. */
static const char *set_choice(const tartan_i_option_rule *rule, const char *value, void *member) {
    if (rule->kind == TARTAN_I_OPTION_FLAG) {
        if (*value != '0' && *value != '1') return NULL;
        *(bool *)member = *value == '1';
        return value + 1;
    }
    for (int32_t i = 0; rule->kind == TARTAN_I_OPTION_WORD && i < rule->nwords; i++) {
        const char *end = after(value, rule->words[i]);
        if (end == NULL || (*end != ' ' && *end != '\0')) continue;
        *(int32_t *)member = i;
        return end;
    }
    return NULL;
}

/* Reads flags and words for as long as they are as they should be: most calls have no other options, and the smallest take less
 * than a microsecond. Returns the rest of the text, which set_named reads, with what is wrong. */
static const char *set_choices(const tartan_i_schema *schema, tartan_op *op, bool apart, const char *text,
                               uint64_t *given) {
    for (;;) {
        while (*text == ' ') text++;
        const char *value = NULL, *end;
        int32_t i = 0;
        while (i < schema->noptions &&
               ((value = after(text, schema->options[i].name)) == NULL || *value != '='))
            i++;
        if (i == schema->noptions || !is_named(schema, i, apart) || (*given >> i & 1) != 0) return text;
        end = set_choice(&schema->options[i], value + 1, member_of(op, &schema->options[i]));
        if (end == NULL || (*end != ' ' && *end != '\0')) return text;
        *given |= UINT64_C(1) << i;
        text = end;
    }
}

static tartan_status set_positional(const tartan_i_schema *schema, tartan_op *op,
                                    const tartan_i_positional *positional) {
    for (int32_t i = 0; i < schema->noptions; i++) {
        const tartan_i_option_rule *rule = &schema->options[i];
        if (!rule->positional) continue;
        if (rule->kind == TARTAN_I_OPTION_SIZES) {
            CHECK_IN(schema->function, positional->sizes.count >= 0, SHAPE,
                     "%s has %" PRId64 " entries, expected 0 or more", rule->name, positional->sizes.count);
            CHECK_IN(schema->function, positional->sizes.data != NULL || positional->sizes.count == 0, HANDLE,
                     "%s is NULL, expected %" PRId64 " entries", rule->name, positional->sizes.count);
            *(tartan_i_sizes *)member_of(op, rule) = positional->sizes;
        } else if (rule->kind == TARTAN_I_OPTION_WINDOWS) {
            if (positional->text != NULL)
                PASS(tartan_i_windows_read(schema->function, positional->text, member_of(op, rule)));
        } else if (rule->kind == TARTAN_I_OPTION_WHOLE) {
            CHECK_IN(schema->function, in_range(rule, (double)positional->whole), ARGUMENT,
                     "%s is %" PRId64 ", expected %s", rule->name, positional->whole, rule->range);
            *(int64_t *)member_of(op, rule) = positional->whole;
        } else {
            CHECK_IN(schema->function, in_range(rule, positional->number), ARGUMENT, "%s is %g, expected %s",
                     rule->name, positional->number, rule->range);
            *(double *)member_of(op, rule) = positional->number;
        }
        positional++;
    }
    return TARTAN_OK;
}

tartan_status tartan_i_op_options(const tartan_i_schema *schema, tartan_op *op,
                                  const tartan_i_positional *positional, const char *text,
                                  tartan_i_option_room *room) {
    uint64_t given = 0;
    for (int32_t i = 0; i < schema->noptions; i++)
        if (positional == NULL || !schema->options[i].positional) set_default(op, &schema->options[i]);
    if (positional != NULL) PASS(set_positional(schema, op, positional));
    if (text == NULL) return TARTAN_OK;
    text = set_choices(schema, op, positional != NULL, text, &given);
    for (bool more = *text != '\0'; more;) {
        tartan_i_option option;
        PASS(tartan_i_option_next(schema->function, "options", &text, &option, &more));
        if (more) PASS(set_named(schema, op, positional != NULL, &option, &given, room));
    }
    return TARTAN_OK;
}
