/*
 * Reads the JSON file that describes a host, for the libraries that stand in for the NVIDIA driver's.
 *
 * Objects and arrays are linked lists of values; true, false and numbers are numbers (whole ones, not negative).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-function"

typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct Value {
    enum { NOTHING, NUMBER, STRING, ARRAY, OBJECT } kind;
    char *key;
    u64 number;
    char *text;
    struct Value *first, *next;
} Value;

static const char *cursor;

static void refuse(const char *what) {
    fprintf(stderr, "host description: %s at: %.40s\n", what, cursor);
    abort();
}

static void skip_space(void) {
    while (isspace((unsigned char)*cursor)) cursor++;
}

static char *parse_string(void) {
    const char *end = strchr(++cursor, '"');
    if (!end || memchr(cursor, '\\', end - cursor)) refuse("a string without escapes was expected");
    char *text = strndup(cursor, end - cursor);
    cursor = end + 1;
    return text;
}

static Value *parse(void);

static Value *parse_members(char closing) {
    Value *first = NULL, **last = &first;
    cursor++;
    for (skip_space(); *cursor != closing; skip_space()) {
        char *key = NULL;
        if (closing == '}') {
            if (*cursor != '"') refuse("a key was expected");
            key = parse_string();
            skip_space();
            if (*cursor++ != ':') refuse("a colon was expected");
        }
        *last = parse();
        (*last)->key = key;
        last = &(*last)->next;
        skip_space();
        if (*cursor == ',') cursor++;
        else if (*cursor != closing) refuse("a comma was expected");
    }
    cursor++;
    return first;
}

static Value *parse(void) {
    static const struct { const char *word; int kind; u64 number; } words[] = {
        {"true", NUMBER, 1}, {"false", NUMBER, 0}, {"null", NOTHING, 0}};
    Value *value = calloc(1, sizeof *value);
    skip_space();
    if (*cursor == '{') {
        value->kind = OBJECT;
        value->first = parse_members('}');
    } else if (*cursor == '[') {
        value->kind = ARRAY;
        value->first = parse_members(']');
    } else if (*cursor == '"') {
        value->kind = STRING;
        value->text = parse_string();
    } else if (isdigit((unsigned char)*cursor)) {
        char *end;
        value->kind = NUMBER;
        value->number = strtoull(cursor, &end, 10);
        cursor = end;
    } else {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (!strncmp(cursor, words[i].word, strlen(words[i].word))) {
                value->kind = words[i].kind;
                value->number = words[i].number;
                cursor += strlen(words[i].word);
                return value;
            }
        refuse("a value was expected");
    }
    return value;
}

static Value *member(const Value *object, const char *key) {
    for (Value *each = object ? object->first : NULL; each; each = each->next)
        if (each->key && !strcmp(each->key, key)) return each->kind == NOTHING ? NULL : each;
    return NULL;
}

static Value *item(const Value *array, u32 index) {
    Value *each = array ? array->first : NULL;
    while (each && index--) each = each->next;
    return each;
}

static u32 length(const Value *array) {
    u32 count = 0;
    for (Value *each = array ? array->first : NULL; each; each = each->next) count++;
    return count;
}

/* The description that FAKE_NVML_JSON names, NULL when there is none. */
static Value *read_description(void) {
    const char *path = getenv("FAKE_NVML_JSON");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return NULL;
    char *text = calloc(1, 1 << 20);
    if (!fread(text, 1, (1 << 20) - 1, file)) refuse("an empty file");
    fclose(file);
    cursor = text;
    Value *document = parse();
    free(text);
    return document;
}

static int lists(const Value *names, const char *name) {
    for (Value *each = names ? names->first : NULL; each; each = each->next)
        if (!strcmp(each->text, name)) return 1;
    return 0;
}

/* The error that "errors" of a place wants from a function, 0 for none. A function in "hang" never returns, one in
 * "crash" ends the program. */
static int injected(const Value *place, const char *function) {
    while (lists(member(place, "hang"), function)) pause();
    if (lists(member(place, "crash"), function)) abort();
    Value *error = member(member(place, "errors"), function);
    if (!error) error = member(member(place, "errors"), "*");
    return error ? (int)error->number : 0;
}
