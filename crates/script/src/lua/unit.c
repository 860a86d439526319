/* Lua 5.1 as one unit, like its own `etc/all.c`, but without the programs `lua` and `luac`. The
   compiler finds the sources in the folder of lua-src. */
/* Makes the functions of Lua's core that other sources use static. */
#define luaall_c
#define LUA_CORE
#define LUA_LIB
#define loslib_c
#include <stddef.h>

#include "number.h"

#include "lobject.h"
#include "lstate.h"
#include "lstring.h"

/* Checks the layout of the beginning of a state, and of a value: `Head` and `Slot` of stack.rs have
   the same layout. */
_Static_assert(offsetof(lua_State, top) == 16 && offsetof(lua_State, base) == 24, "see stack.rs");
_Static_assert(sizeof(TValue) == 16 && offsetof(TValue, tt) == 8, "see stack.rs");

/* Counts work that runs no instructions as that many instructions, so that the hook asks in time if
   the script may continue (stack.rs). */
static void count_work(lua_State *L, size_t instructions) {
  int left = L->hookcount;
  L->hookcount = left > 0 && (size_t)left > instructions ? left - (int)instructions : 1;
}

/* Counts the creation of a string from a long text as work. Lua copies and hashes the text. If the
   string already exists, Lua only compares it, without an allocation that would count. */
static TString *counted_newlstr(lua_State *L, const char *text, size_t len) {
  if (len >= 1024) count_work(L, len / 64);
  return luaS_newlstr(L, text, len);
}
#define luaS_newlstr counted_newlstr

#include "lapi.c"
#include "lcode.c"
#include "ldebug.c"
#include "ldo.c"
#include "ldump.c"
#include "lfunc.c"
#include "lgc.c"
#include "llex.c"
#include "lmem.c"
#include "lobject.c"
#include "lopcodes.c"
#include "lparser.c"
#include "lstate.c"
#undef luaS_newlstr
#include "lstring.c"
#define luaS_newlstr counted_newlstr
#include "ltable.c"

/* Returns 1 if the value at `place`, counted from the bottom of the stack, is a table with the
   layout that `lua_createtable(L, count, 0)` makes. The values of its `count` slots may be
   anything. */
int script_is_list(const lua_State *L, int place, int count) {
  const TValue *value = L->base + (place - 1);
  if (!ttistable(value)) return 0;
  const Table *table = hvalue(value);
  return table->sizearray == count && table->node == dummynode && table->metatable == NULL;
}

#include "ltm.c"
#include "lundump.c"
#include "lvm.c"
#include "lzio.c"

#include "lauxlib.c"
#include "lbaselib.c"
#include "ldblib.c"
#include "liolib.c"
#include "linit.c"
#include "lmathlib.c"
#include "loadlib.c"
#include "loslib.c"
#include "lstrlib.c"
#include "cheap.h"

/* `table.sort` without a function, and `table.maxn`, run no instructions. So each comparison and
   each element counts as one instruction. */
static void count_step(lua_State *L) {
  if (--L->hookcount <= 0) {
    resethookcount(L);
    luaD_callhook(L, LUA_HOOKCOUNT, -1);
  }
}

static int counted_lessthan(lua_State *L, int left, int right) {
  count_step(L);
  return lua_lessthan(L, left, right);
}

static int counted_next(lua_State *L, int table) {
  count_step(L);
  return lua_next(L, table);
}

#define lua_lessthan counted_lessthan
#define lua_next counted_next
#include "ltablib.c"
