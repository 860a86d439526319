/* Numbers become text by `script_number_text` (number.rs), which writes integers without printf.
   Short texts of digits become numbers without strtod, because scripts add up replies of HGET and
   GET. */
#include <stdlib.h>

#include "luaconf.h"

extern int script_number_text(char *buffer, double number);

#undef lua_number2str
#define lua_number2str(buffer, number) script_number_text((buffer), (number))

/* The maximum number of digits that are converted without strtod. Such a number is below 2^53, and
   a double represents all integers up to there exactly. */
#define EXACT_DIGITS_MAX 15

/* Returns the number at the start of the text and stores the place of its end in `*end`, as strtod
   does. */
static double script_text_number(const char *text, char **end) {
  const char *next = text;
  long long number = 0;
  while (*next >= '0' && *next <= '9' && next - text < EXACT_DIGITS_MAX) number = number * 10 + (*next++ - '0');
  if (next == text || *next != '\0') return strtod(text, end);
  *end = (char *)next;
  return (double)number;
}

#undef lua_str2number
#define lua_str2number(text, end) script_text_number((text), (end))
