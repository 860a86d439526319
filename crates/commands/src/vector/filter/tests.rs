//! Test cases of filter expressions, compared with Redis 8.0.2, and random expressions compared
//! with a naive evaluator.

use proptest::prelude::*;

use super::*;

const ATTRIBUTES: &str = r#"{"a":1,"b":2.5,"s":"abc","e":"","t":true,"f":false,"n":null,"l":[1,2,"x",true],"o":{"a":1},"num":"12","neg":-3,"b-c":1,"b_c":1,"1":1,"z":[null],"ll":[[1]],"zero":"0"}"#;

/// Returns the outcome `T` (true) or `F` (false) of a filter expression that parses, and the place
/// of the error for others.
fn outcome(attributes: &str, expression: &str) -> String {
    match Filter::parse(expression.as_bytes()) {
        Ok(filter) => if filter.holds(attributes.as_bytes()) { "T" } else { "F" }.to_owned(),
        Err(error) => {
            let line = error.line().into_owned();
            let place = line.strip_prefix(b"ERR syntax error in FILTER expression near: ").unwrap();
            String::from_utf8_lossy(place).into_owned()
        }
    }
}

/// Checks filter expressions, one a line, that all have this outcome for [`ATTRIBUTES`].
fn check(expected: &str, expressions: &str) {
    for expression in expressions.lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert_eq!(outcome(ATTRIBUTES, expression), expected, "{expression}");
    }
}

#[test]
fn values_and_fields() {
    check(
        "T",
        r#".a
        .s
        .t
        .l
        !.f
        not .n
        1
        "x"
        -1
        []
        .b-c
        .b_c
        .1
        "0"
        .zero
        .a == 1
        .a==1and.b
        .a+1 == 2
        .a -1 == 0
        .t == 1
        .t == "1"
        .num == 12
        .num + 1 == 13
        .neg in [-3]
        .n == .n"#,
    );
    check(
        "F",
        r#".e
        .f
        .n
        .o
        .missing
        not .missing
        .a or .missing
        .missing or .a
        0
        ""
        .
        .a-1 == 0
        .5 == 0.5
        .t == "true"
        .n == 0
        .n == .f
        .n == """#,
    );
}

#[test]
fn strings_are_numbers_for_most_operators() {
    check(
        "T",
        r#".s == "abc"
        .s == 'abc'
        .s == 0
        .s + 1 == 1
        .s >= 0
        "12a" == 0
        " 12" == 12
        "0x10" == 16
        "-0x10" == -16
        "inf" > 5
        "nan" == "nan"
        "1e400" > 1e300
        ".5" == 0.5
        "" == 0
        .n != 0
        .n >= 0
        .n < 1
        .l == 0
        .l == ""
        .l == .l"#,
    );
    check(
        "F",
        r#".s != "abc"
        .s > "abb"
        .s < "abd"
        "a" < "b"
        "10" < "9"
        "12 " == 12
        "1e" == 1
        .num == "12.0"
        .l == 1
        .n > 0"#,
    );
}

#[test]
fn lists() {
    check(
        "T",
        r#"1 in .l
        "x" in .l
        .t in .l
        .a in [1,2]
        .s in ["abc"]
        .a in ["1"]
        1 in [1,]
        1 in [ 1 , 2 ]
        .num in [12]
        [1] in .l
        .l in .l
        .n in .z
        0 in .ll
        .ll in .ll
        1in[1]
        .a in [-1, 1]"#,
    );
    check(
        "F",
        r#"3 in .l
        .a in 1
        "b" in .s
        "bc" in "abc"
        1 in .num
        .n in [0]
        1 in .ll
        "x" in .o
        .a in []
        3 in [2] + 1"#,
    );
}

#[test]
fn precedence_and_order() {
    check(
        "T",
        "2 ** 3 ** 2 == 512
        2 + 3 * 4 == 14
        10 - 2 - 3 == 5
        100 / 10 * 2 == 20
        -7 % 3 == -1
        7.5 % 2 == 1.5
        2 == 2 < 3
        5 < 3 == 0
        5 >= 3 <= 1
        1 in [1] == 1
        2 in [2] > 0
        1 + 1 in [2]
        5 * 2 in [10]
        1 or 1 and 0
        1 || 1 && 0
        (2 and 3) == 1
        not 5 == 0
        !0 + 1 == 2
        2 * ! 0 == 2
        (! 2) ** 0 == 1
        ! 2 ** 0
        2 ** !0 == 2
        0 and not 1 or 1
        1 - -1 == 2
        1--1 == 2
        2*-3 == -6
        (1)-1 == 0
        [1] -1
        1/0
        0/0
        0/0 != 0/0
        1 2 + == 3
        + 1 2 == 3
        (1)(2) +
        1 (+ 2)
        1 ( )
        0 not and 1",
    );
    check(
        "F",
        "2 and 3 == 1
        3 > 2 > 1
        2 < 3 == 2
        3 != 2 > 2
        1 1 -
        0/0 == 0/0
        0/0 > 1
        not 1 and 1
        1 notin 2
        1 2 ==
        .a not
        3 == -3",
    );
}

#[test]
fn an_error_shows_where_the_text_is_wrong() {
    let cases = [
        ("", ""),
        ("   ", "   "),
        (".o.a", ".o.a"),
        (".a $ 1", "$ 1"),
        (".a$", "$"),
        ("true or false", " or false"),
        ("1 == null", "1 == null"),
        ("null == .n", "null == .n"),
        ("null -1 == -1", "null -1 == -1"),
        ("null!=.a", ".a"),
        ("[null]", "null]"),
        (".a AND .b", " .b"),
        (".a = 1", " 1"),
        (".a === 1", " 1"),
        (".a => 1", " 1"),
        ("1 <> 1", "1 <> 1"),
        ("1& &1", " &1"),
        ("1 =x(2)", "2)"),
        ("not not .a", "not not .a"),
        ("!!.a", "!!.a"),
        ("-.a == -1", "-.a == -1"),
        ("- 1", "- 1"),
        ("2***3", "2***3"),
        ("(1", "(1"),
        ("1)", "1)"),
        ("()", "()"),
        ("(1 +) 2", "(1 +) 2"),
        ("1 == . 2", ". 2"),
        ("1e-3 < 1", "-3 < 1"),
        ("5e == 1", " == 1"),
        ("12abc == 12", " == 12"),
        ("1.2.3", "1.2.3"),
        ("[1 2]", "2]"),
        ("[,1]", ",1]"),
        ("[1,,2]", ",2]"),
        ("[.a]", ".a]"),
        ("[-]", "]"),
        ("[1", "[1"),
        ("1 in [(1)]", "(1)]"),
        (".s == \"abc", ".s == \"abc"),
        ("\"\\\"", "\"\\\""),
        ("1, 2", ", 2"),
        ("1 ]", "]"),
        (".é == 1", ".é == 1"),
        (".aé == 1", "é == 1"),
    ];
    for (expression, place) in cases {
        assert_eq!(outcome(ATTRIBUTES, expression), place, "{expression}");
    }
    assert_eq!(outcome(ATTRIBUTES, ".a\0$"), "T");
    let long = "1".repeat(EXPRESSION_LEN_MAX + 1);
    assert!(Filter::parse(long.as_bytes()).is_err());
}

#[test]
fn attributes_are_read_as_redis_reads_them() {
    let there = [
        r#"{"a":1"#,
        r#"{"a":1}x"#,
        " {\t\"a\" \n: 1 }",
        r#"{"a":1,"a":0}"#,
        r#"{"x":{"a":0},"a":1}"#,
        r#"{"x":"\"a\":0","a":1}"#,
        r#"{"x":01,"a":1}"#,
        r#"{"x":1.2.3,"a":1}"#,
        r#"{"x":.5,"a":1}"#,
        r#"{"x":-,"a":1}"#,
        r#"{"x":e+,"a":1}"#,
        r#"{"x":[1}],"a":1}"#,
        r#"{"x":{]},"a":1}"#,
        r#"{"x":{"c":"}"},"a":1}"#,
        r#"{"a":+1}"#,
        r#"{"a":5.}"#,
        r#"{"a":1a}"#,
        r#"{"a":"x"y}"#,
        r#"{"a":true]}"#,
        r#"{"a":[]}"#,
        r#"{"a":[[1],[]]}"#,
        r#"{"a":[ 1 , null ]}"#,
        r#"{"a":1e400}"#,
        "{\"x\":\"a\nb\",\"a\":1}",
    ];
    let missing = [
        "",
        "1",
        "[1]",
        "{}",
        r#"{"b":2 "a":1}"#,
        r#"{a:1}"#,
        r#"{"x":tru,"a":1}"#,
        r#"{"x":,"a":1}"#,
        r#"{"x":truefalse,"a":1}"#,
        r#"{"x":[{]},"a":1}"#,
        r#"{"x":"x"x,"a":1}"#,
        r#"{,"a":2}"#,
        r#"{"\u0061":1}"#,
        r#"{"a":.5}"#,
        r#"{"a":1e}"#,
        r#"{"a":1-2}"#,
        r#"{"a":-}"#,
        r#"{"a":"x"#,
        r#"{"a":"x\"#,
        r#"{"a":truex}"#,
        r#"{"a":[1,]}"#,
        r#"{"a":[1"#,
        r#"{"a":[1 2]}"#,
        r#"{"a":[{}]}"#,
        r#"{"a":[[1,]]}"#,
        r#"{"a":{"b":1}}"#,
        r#"{"A":1}"#,
        r#"{"a":null}"#,
    ];
    there.iter().for_each(|attributes| assert_eq!(outcome(attributes, ".a"), "T", "{attributes}"));
    missing.iter().for_each(|attributes| assert_eq!(outcome(attributes, ".a"), "F", "{attributes}"));
    let texts = [
        (r#"{"u":"a\nb\r\t"}"#, "a\nb\r\t"),
        (r#"{"u":"\b\f\q\/"}"#, "bfq/"),
        (r#"{"u":"\u00e9"}"#, "u00e9"),
        (r#"{"u":"é"}"#, "é"),
    ];
    for (attributes, text) in texts {
        assert_eq!(outcome(attributes, &format!(".u == '{text}'")), "T", "{attributes}");
        assert_eq!(outcome(attributes, &format!("'{text}' in ['', '{text}']")), "T");
        assert_eq!(outcome(attributes, &format!(".u in ['', '{text}']")), "T");
    }
    assert_eq!(outcome(r#"{"u":"\n5"}"#, ".u == 5"), "T");
    assert_eq!(outcome(r#"{"u":"\5"}"#, ".u + 1 == 6"), "T");
}

#[test]
fn deep_nesting_costs_no_stack() {
    let depth = 100_000;
    let arrays = format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert_eq!(outcome(&arrays, ".a"), "T");
    let brackets = format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(outcome("{}", &brackets), "T");
}

/// A random filter expression as a tree.
#[derive(Clone, Debug)]
enum Tree {
    Number(i32),
    Text(String),
    Field(&'static str),
    Not(Box<Tree>),
    Pair(Box<Tree>, &'static str, Box<Tree>),
}

/// The value of an expression's tree: a number or a string.
#[derive(Clone, Debug, PartialEq)]
enum Result {
    Number(f64),
    Text(String),
}

impl Result {
    fn number(&self) -> f64 {
        match self {
            Result::Number(number) => *number,
            Result::Text(text) if text.is_empty() => 0.0,
            Result::Text(text) => text.parse().unwrap_or(0.0),
        }
    }

    fn is_true(&self) -> bool {
        match self {
            Result::Number(number) => *number != 0.0,
            Result::Text(text) => !text.is_empty(),
        }
    }
}

impl Tree {
    /// Writes the tree as a filter expression, with brackets around each operator.
    fn write(&self) -> String {
        match self {
            Tree::Number(number) => number.to_string(),
            Tree::Text(text) => format!("\"{text}\""),
            Tree::Field(name) => format!(".{name}"),
            Tree::Not(operand) => format!("(not {})", operand.write()),
            Tree::Pair(a, operator, b) => format!("({} {operator} {})", a.write(), b.write()),
        }
    }

    /// Evaluates the expression's tree for the fields `p` = 7, `q` = "7", `r` = "x"; `None` if it
    /// uses another field.
    fn evaluate(&self) -> Option<Result> {
        let truth = |holds: bool| Result::Number(f64::from(u8::from(holds)));
        Some(match self {
            Tree::Number(number) => Result::Number((*number).into()),
            Tree::Text(text) => Result::Text(text.clone()),
            Tree::Field("p") => Result::Number(7.0),
            Tree::Field("q") => Result::Text("7".into()),
            Tree::Field("r") => Result::Text("x".into()),
            Tree::Field(_) => return None,
            Tree::Not(operand) => truth(!operand.evaluate()?.is_true()),
            Tree::Pair(a, operator, b) => {
                let (a, b) = (a.evaluate()?, b.evaluate()?);
                let (x, y) = (a.number(), b.number());
                let equal = match (&a, &b) {
                    (Result::Text(a), Result::Text(b)) => a == b,
                    _ => x == y,
                };
                match *operator {
                    "+" => Result::Number(x + y),
                    "-" => Result::Number(x - y),
                    "*" => Result::Number(x * y),
                    "/" => Result::Number(x / y),
                    "%" => Result::Number(x % y),
                    "**" => Result::Number(x.powf(y)),
                    "==" => truth(equal),
                    "!=" => truth(!equal),
                    "<" => truth(x < y),
                    "<=" => truth(x <= y),
                    ">" => truth(x > y),
                    ">=" => truth(x >= y),
                    "and" | "&&" => truth(a.is_true() && b.is_true()),
                    "or" | "||" => truth(a.is_true() || b.is_true()),
                    other => panic!("{other} is no operator"),
                }
            }
        })
    }
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (-9..9_i32).prop_map(Tree::Number),
        "[a-z0-9]{0,3}".prop_map(Tree::Text),
        prop::sample::select(vec!["p", "q", "r", "p", "q", "missing"]).prop_map(Tree::Field),
    ];
    leaf.prop_recursive(6, 40, 2, |inner| {
        let operators =
            vec!["+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or", "&&", "||"];
        prop_oneof![
            inner.clone().prop_map(|operand| Tree::Not(Box::new(operand))),
            (inner.clone(), prop::sample::select(operators), inner).prop_map(|(a, operator, b)| Tree::Pair(
                Box::new(a),
                operator,
                Box::new(b)
            )),
        ]
    })
}

proptest! {
    #[test]
    fn random_expressions_agree_with_a_naive_evaluator(tree in trees()) {
        let attributes = br#"{"q":"7","p":7,"r":"x"}"#;
        let text = tree.write();
        let filter = Filter::parse(text.as_bytes()).unwrap();
        let expected = tree.evaluate().is_some_and(|value| value.is_true());
        prop_assert_eq!(filter.holds(attributes), expected, "{}", text);
    }

    #[test]
    fn no_text_panics(
        expression in "[ .a-c0-9\"'\\[\\](),+*/%!<>=&|inotrd\\\\-]{0,40}",
        attributes in "[ {}\\[\\]\":,a-c0-9.eE+tfnruls\\\\-]{0,40}",
        inner in "[\\[\\]\",a0-9 .truefalsn\\\\]{0,20}",
    ) {
        if let Ok(filter) = Filter::parse(expression.as_bytes()) {
            filter.holds(attributes.as_bytes());
            filter.holds(format!("{{\"a\":{inner},\"b\":[{inner}]}}").as_bytes());
        }
        for field in [".a", ".b", "1 in .b"] {
            let filter = Filter::parse(field.as_bytes()).unwrap();
            filter.holds(attributes.as_bytes());
            filter.holds(format!("{{\"a\":{inner},\"b\":[{inner}]}}").as_bytes());
        }
    }
}
