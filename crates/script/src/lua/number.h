/* Included before each of Lua's sources: numbers become text by `script_number_text` (number.rs),
   which writes integers without printf. */
/* Some sources ask for more of luaconf.h than others, by these names; all get all of it. */
#define LUA_CORE
#define loslib_c
#include "luaconf.h"
#undef LUA_CORE
#undef loslib_c

extern int script_number_text(char *buffer, double number);

#undef lua_number2str
#define lua_number2str(buffer, number) script_number_text((buffer), (number))
