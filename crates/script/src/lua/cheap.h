/* Cheap calls of string functions run Lua's own functions, which are the fastest for short texts. A
   call is cheap if it takes few steps whatever bytes its texts contain. Other calls run our
   functions, which can be interrupted (libraries/strings.rs, whose tests compare both).

   The bound of the steps: from each start, Lua's matcher may try all ways to divide the rest of the
   subject among the items that match a varying number of bytes. With `n` bytes and `q` such items
   there are at most (n + 1) ... (n + q) / q! ways. Each way takes a step for each item of the
   pattern. An item at the end of the pattern does not count, because nothing after it can fail.
   `%b` and `%1` may read all bytes in one step. A cheap call counts as that many instructions, so
   that the hook asks in time if the script may continue. */

/* The maximum length of a pattern in bytes; each byte may take a frame of C's stack. */
#define CHEAP_PATTERN_MAX 64
/* The maximum number of items that match a varying number of bytes. */
#define CHEAP_ITEMS_MAX 4
/* The maximum number of steps of a call; a step takes about 8 ns. */
#define CHEAP_STEPS_MAX (1 << 17)
/* The maximum length in bytes of a text that `rep` makes. */
#define CHEAP_REP_MAX 4096
/* The number of steps that a match counts for being pushed or replaced. */
#define MATCH_STEPS 16

/* Runs the Rust function in the upvalue (stack.rs). */
extern int script_call_native(lua_State *L);

/* True if the first two arguments are strings. */
#define are_strings(L) (L->top - L->base >= 2 && ttisstring(L->base) && ttisstring(L->base + 1))

/* Returns 1 if `sign`, the byte after an item, lets the item match a varying number of bytes. */
static int is_repeated(char sign) {
  return sign == '*' || sign == '+' || sign == '-' || sign == '?';
}

/* Returns the maximum number of ways in which the items of a pattern may match `n` bytes. Returns
   more than CHEAP_STEPS_MAX if there are too many such items. */
static size_t count_ways(const char *pattern, size_t len, size_t n) {
  static const unsigned char shifts[CHEAP_ITEMS_MAX + 1] = {0, 0, 1, 1, 2}; /* floor(log2(i)) */
  const char *end = pattern + len;
  size_t ways = 1, items = 0;
  while (end > pattern && end[-1] == ')') end--;
  if (end > pattern && is_repeated(end[-1])) end--;
  for (; pattern < end; pattern++) {
    if (*pattern < '%' || *pattern > '?') continue; /* most bytes are letters */
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

/* Returns 1 if a call is cheap, and then counts its steps as instructions. */
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

/* The steps of all matches are counted in advance, when `gmatch` is called. */
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
