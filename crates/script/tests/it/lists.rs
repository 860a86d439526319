//! Tests of `KEYS` and `ARGV`: a script must get exactly its own texts, although the tables are
//! reused and earlier scripts may have changed them.

use resp::Protocol;
use script::{Call, Sha, Vm};
use stdx::ByteQueue;

use crate::server::{Server, options};

/// A script that returns everything that scripts can see of `KEYS` and `ARGV`, as text.
const PROBE: &[u8] = b"local out = {}
for _, list in ipairs({KEYS, ARGV}) do
  local all = {}
  for key, value in pairs(list) do all[#all + 1] = type(key) .. tostring(key) .. '=' .. value end
  table.sort(all)
  out[#out + 1] = #list .. '/' .. tostring(getmetatable(list)) .. '/' .. tostring(list.none) .. '/'
      .. tostring(list[#list + 1]) .. ':' .. table.concat(all, ',')
end
return table.concat(out, ' ')";

/// Scripts that change the tables `KEYS` and `ARGV` in all ways that are permitted.
const MEDDLERS: &[&str] = &[
    "KEYS[1] = 'other'",
    "KEYS[1] = nil",
    "KEYS[1] = nil KEYS.x = 1",
    "KEYS[2] = nil KEYS.x = 1 KEYS[1] = nil KEYS[1] = 2",
    "KEYS[1] = nil KEYS['1'] = 'text'",
    "KEYS[#KEYS + 1] = 'more'",
    "KEYS[1.5] = 1",
    "KEYS[0] = 'zero' ARGV[-1] = 'minus'",
    "KEYS[true] = 1 ARGV[KEYS] = ARGV",
    "for i = 1, 100 do KEYS[i] = i end",
    "for i = 1, 100 do KEYS['f' .. i] = i end for i = 1, 100 do KEYS['f' .. i] = nil end",
    "table.insert(KEYS, 1, 'first')",
    "table.remove(KEYS)",
    "table.remove(ARGV, 1)",
    "table.sort(KEYS, function(a, b) return a > b end)",
    "rawset(KEYS, 'raw', 1)",
    "setmetatable(KEYS, {__index = function() return 'none' end})",
    "setmetatable(ARGV, {__len = function() return 7 end, __metatable = 1})",
    "local keys = KEYS local co = coroutine.create(function() coroutine.yield(keys) end) coroutine.resume(co)",
    "for i = 1, 8 do KEYS[i] = nil end for i = 8, 1, -1 do KEYS[i] = i end",
    "for i = 1, 5000 do KEYS['f' .. i] = 1 end for i = 1, 5000 do KEYS['f' .. i] = nil end",
    "for i = 1, 5000 do KEYS[i] = 1 end for i = 5000, 3, -1 do KEYS[i] = nil end",
    "KEYS = nil",
    "rawset(_G, 'KEYS', {})",
    "error(KEYS)",
    "return KEYS",
];

fn run(vm: &mut Vm, program: &[u8], keys: &[&[u8]], args: &[&[u8]]) -> String {
    let sha = Sha::of(program);
    vm.compile(&sha, program).expect("it compiles");
    let mut reply = ByteQueue::new();
    let call = Call { keys, args, protocol: Protocol::Resp2 };
    match vm.run(&sha, &call, &mut Server::default(), &mut reply) {
        Ok(()) => String::from_utf8_lossy(reply.as_single().unwrap_or_default()).into_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// Scripts whose results depend on the layout of the tables `KEYS` and `ARGV`, because Lua does not
/// define the results.
const EXTENDERS: &[&str] = &[
    "KEYS[8] = 'x' return #KEYS",
    "KEYS[4] = 'x' ARGV[6] = 'y' return {#KEYS, #ARGV}",
    "KEYS[3] = nil KEYS[6] = 6 KEYS[7] = 7 table.insert(KEYS, 'z') return {#KEYS, KEYS[3], KEYS[4], KEYS[8]}",
    "KEYS[9] = 9 local out = {} for key in pairs(KEYS) do out[#out + 1] = key end return out",
    "KEYS[2] = nil return {#KEYS, table.getn(KEYS), unpack(KEYS)}",
    "\n\n\nerror(KEYS)",
    "\n\nerror('text', 0)",
];

/// Checks that each script gets exactly its own keys and arguments, although earlier scripts
/// changed the tables of the same state.
#[test]
fn a_script_sees_its_own_keys_and_arguments_and_nothing_of_others() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut vm = Vm::new(&options());
    let texts: Vec<Vec<u8>> = (0..20).map(|number| format!("text {number}").into_bytes()).collect();
    let pick = |rng: &mut fastrand::Rng| -> Vec<&[u8]> {
        let len = if rng.bool() { rng.usize(..4) } else { rng.usize(..13) };
        (0..len).map(|_| texts[rng.usize(..texts.len())].as_slice()).collect()
    };
    for _ in 0..3_000 {
        let meddler = MEDDLERS[rng.usize(..MEDDLERS.len())];
        let (keys, args) = (pick(&mut rng), pick(&mut rng));
        run(&mut vm, meddler.as_bytes(), &keys, &args);
        let (keys, args) = (pick(&mut rng), pick(&mut rng));
        let seen = run(&mut vm, PROBE, &keys, &args);
        let text = |list: &[&[u8]]| {
            let mut all: Vec<String> = (1..)
                .zip(list)
                .map(|(at, text)| format!("number{at}={}", String::from_utf8_lossy(text)))
                .collect();
            all.sort();
            format!("{}/nil/nil/nil:{}", list.len(), all.join(","))
        };
        let expected = format!("{} {}", text(&keys), text(&args));
        assert_eq!(seen, format!("${}\r\n{expected}\r\n", expected.len()), "after {meddler}");
    }
}

/// Checks that a script that uses `KEYS` and `ARGV` returns the same in a used Lua state as in a
/// new one. This includes results that Lua does not define, and the place of an error.
#[test]
fn what_a_script_does_to_its_lists_has_the_results_that_it_has_in_a_new_state() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut vm = Vm::new(&options());
    let texts: Vec<Vec<u8>> = (0..9).map(|number| format!("text {number}").into_bytes()).collect();
    let pick =
        |rng: &mut fastrand::Rng| texts[..rng.usize(..=9)].iter().map(Vec::as_slice).collect::<Vec<_>>();
    let raisers = ["KEYS", "'text', 0"].map(|what| {
        format!("pcall(string.gsub, string.rep('a', 9000), 'a', function() error({what}) end) return 1")
    });
    for _ in 0..1_000 {
        let before = match rng.usize(..MEDDLERS.len() + 4) {
            at if at < MEDDLERS.len() => MEDDLERS[at],
            at => &raisers[at % 2],
        };
        let count = pick(&mut rng);
        run(&mut vm, before.as_bytes(), &count, &pick(&mut rng));
        let extender = EXTENDERS[rng.usize(..EXTENDERS.len())].as_bytes();
        let (keys, args) = (if rng.bool() { count } else { pick(&mut rng) }, pick(&mut rng));
        let expected = run(&mut Vm::new(&options()), extender, &keys, &args);
        let seen = run(&mut vm, extender, &keys, &args);
        assert_eq!(seen, expected, "{} after {before}", extender.escape_ascii());
    }
}
