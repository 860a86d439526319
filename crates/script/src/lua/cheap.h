/* Calls of string functions that are cheap whatever their texts are run as Lua's own, which are the
   fastest for short texts; the others run as ours, which can be interrupted (libraries/strings.rs,
   whose tests compare both).

   From each start, Lua's matcher may try all ways to divide the rest of the subject among the items
   that match several bytes: of `n` bytes and `q` such items there are at most (n + 1) ... (n + q) /
   q! of them, and each takes a step for each item of the pattern. An item that ends the pattern does
   not count, since nothing behind it can fail. `%b` and `%1` may look at all bytes in one step. A
   cheap call counts as that many instructions, so the hook asks in time whether the script may go
   on. */

/* Bytes of a pattern: each may be a frame of C's stack. */
#define CHEAP_PATTERN_MAX 64
/* Items that match several bytes. */
#define CHEAP_ITEMS_MAX 4
/* Steps of a call, of some 8 ns each. */
#define CHEAP_STEPS_MAX (1 << 17)
/* Bytes of a text that `rep` makes. */
#define CHEAP_REP_MAX 4096
/* Steps that it takes to push or replace a match. */
#define MATCH_STEPS 16

/* Runs the Rust function in the upvalue (stack.rs). */
extern int script_call_native(lua_State *L);

/* Whether the arguments are two strings. */
#define are_strings(L) (L->top - L->base >= 2 && ttisstring(L->base) && ttisstring(L->base + 1))

/* Whether an item may match several bytes. */
static int is_repeated(char sign) {
  return sign == '*' || sign == '+' || sign == '-' || sign == '?';
}

/* In how many ways the items of a pattern may match in `n` bytes; above the most steps where these
   are too many to count. */
static size_t count_ways(const char *pattern, size_t len, size_t n) {
  static const unsigned char shifts[CHEAP_ITEMS_MAX + 1] = {0, 0, 1, 1, 2}; /* for q!, rounded down */
  const char *end = pattern + len;
  size_t ways = 1, items = 0;
  while (end > pattern && end[-1] == ')') end--;
  if (end > pattern && is_repeated(end[-1])) end--;
  for (; pattern < end; pattern++) {
    if (*pattern < '%' || *pattern > '?') continue; /* most are letters */
    if (is_repeated(*pattern)) {
      if (++items > CHEAP_ITEMS_MAX) return CHEAP_STEPS_MAX + 1;
      ways = ways * (n + items) >> shifts[items];
    } else if (*pattern == '%' && ++pattern < end && (*pattern == 'b' || isdigit(uchar(*pattern)))) {
      ways = ways * (n + 1);
    }
    if (ways > CHEAP_STEPS_MAX) break;
  }
  return ways;
}

/* Returns 1 if a call is cheap, and then counts it. */
static int is_cheap(lua_State *L, int may_be_anchored, size_t match_steps) {
  size_t n, len, steps, starts;
  const char *pattern;
  if (!are_strings(L)) return 0;
  n = tsvalue(L->base)->len;
  len = tsvalue(L->base + 1)->len;
  if (n > CHEAP_STEPS_MAX || len > CHEAP_PATTERN_MAX) return 0;
  pattern = svalue(L->base + 1);
  starts = may_be_anchored && *pattern == '^' ? 1 : n + 1;
  steps = count_ways(pattern, len, n);
  if (steps > CHEAP_STEPS_MAX) return 0;
  steps = (steps * (1 + len / 4) + match_steps) * starts;
  if (steps > CHEAP_STEPS_MAX) return 0;
  count_work(L, steps);
  return 1;
}

int script_find(lua_State *L) {
  return is_cheap(L, 1, 0) ? str_find(L) : script_call_native(L);
}

int script_match(lua_State *L) {
  return is_cheap(L, 1, 0) ? str_match(L) : script_call_native(L);
}

/* All its matches together are one search. */
int script_gmatch(lua_State *L) {
  return is_cheap(L, 0, MATCH_STEPS) ? gmatch(L) : script_call_native(L);
}

int script_gsub(lua_State *L) {
  return is_cheap(L, 1, MATCH_STEPS) ? str_gsub(L) : script_call_native(L);
}

int script_rep(lua_State *L) {
  if (L->top - L->base >= 2 && ttisstring(L->base) && ttisnumber(L->base + 1)) {
    size_t len = tsvalue(L->base)->len;
    lua_Number count = nvalue(L->base + 1);
    if (count >= 0 && count <= CHEAP_REP_MAX && len * count <= CHEAP_REP_MAX) return str_rep(L);
  }
  return script_call_native(L);
}
