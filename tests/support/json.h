// SPDX-License-Identifier: Apache-2.0
// A reader of JSON for tests of texts that the library writes.
#ifndef TARTAN_TESTS_JSON_H
#define TARTAN_TESTS_JSON_H

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tartan_test {

struct Json {
    enum Kind { kBad, kText, kNumber, kWord, kList, kObject } kind = kBad;
    std::string text; // of a text or word
    double number = 0;
    std::vector<Json> items;
    std::vector<std::pair<std::string, Json>> members;

    const Json &operator[](const std::string &name) const {
        static const Json none;
        for (const auto &member : members)
            if (member.first == name) return member.second;
        return none;
    }

    // Of kind kBad unless the whole text is one value.
    static Json read(const std::string &text) {
        const char *at = text.c_str();
        Json value = take(at);
        blanks(at);
        return *at == '\0' ? value : Json();
    }

  private:
    static void blanks(const char *&at) {
        while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
    }
    static bool accept(const char *&at, char c) {
        blanks(at);
        if (*at != c) return false;
        at++;
        return true;
    }
    static bool take_text(const char *&at, std::string &out) {
        if (!accept(at, '"')) return false;
        for (; *at != '"'; at++) {
            if ((unsigned char)*at < ' ') return false; // also the end
            if (*at == '\\') {
                if (std::strchr("\"\\/bfnrtu", *++at) == nullptr || *at == '\0') return false;
                for (int i = 0; *at == 'u' && i < 4; i++)
                    if (!std::isxdigit((unsigned char)at[1 + i])) return false;
                out += *at == 'n' ? '\n' : *at;
            } else {
                out += *at;
            }
        }
        at++;
        return true;
    }
    static Json take(const char *&at) {
        Json value;
        blanks(at);
        if (*at == '"') {
            if (take_text(at, value.text)) value.kind = kText;
        } else if (*at == '[') {
            at++;
            bool more = !accept(at, ']'), good = true;
            while (more && good) {
                value.items.push_back(take(at));
                more = accept(at, ',');
                good = value.items.back().kind != kBad && (more || accept(at, ']'));
            }
            if (good) value.kind = kList;
        } else if (*at == '{') {
            at++;
            bool more = !accept(at, '}'), good = true;
            while (more && good) {
                std::string name;
                good = take_text(at, name) && accept(at, ':');
                if (!good) break;
                value.members.emplace_back(name, take(at));
                more = accept(at, ',');
                good = value.members.back().second.kind != kBad && (more || accept(at, '}'));
            }
            if (good) value.kind = kObject;
        } else if (*at == '-' || std::isdigit((unsigned char)*at)) {
            char *end;
            value.number = std::strtod(at, &end);
            at = end, value.kind = kNumber;
        } else {
            while (std::isalpha((unsigned char)*at)) value.text += *at++;
            if (value.text == "true" || value.text == "false" || value.text == "null") value.kind = kWord;
        }
        return value;
    }
};

} // namespace tartan_test

#endif
