/* Numbers become text by `script_number_text` (number.rs), which writes integers without printf, and
   short texts of digits become numbers without strtod: scripts add up what HGET and GET reply with. */
#include <stdlib.h>

#include "luaconf.h"

extern int script_number_text(char *buffer, double number);

#undef lua_number2str
#define lua_number2str(buffer, number) script_number_text((buffer), (number))

/* So many digits are below 2^53, where a double has all integers. */
#define EXACT_DIGITS_MAX 15

/* As strtod: the number that the text begins with, and in `*end` where it ends. */
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
