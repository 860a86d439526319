/* Numbers become text by `script_number_text` (number.rs), which writes integers without printf. */
#include "luaconf.h"

extern int script_number_text(char *buffer, double number);

#undef lua_number2str
#define lua_number2str(buffer, number) script_number_text((buffer), (number))
