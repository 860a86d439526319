//! The expressions of VSIM's option FILTER: parsed once, then evaluated on the attributes of each
//! candidate. Syntax and semantics are those of Redis 8.0.2.
//!
//! ```text
//!   .year > 1980 and .genre in ["action", "drama"]
//!     ─►  .year  1980  >  .genre  [list]  in  and        operands before their operator
//! ```
//! [`Filter::parse`] converts the tokens to postfix order with a stack of operators. Neither
//! parsing nor evaluation recurses, so the nesting of an expression costs no stack. As in Redis,
//! operands and operators may also be in another order, if each operator has its operands:
//! `1 2 +` is 3.
//!
//! ```text
//!   or ||              lowest precedence
//!   and &&
//!   == != < > <= >= in
//!   + -
//!   * / %
//!   **                 right-associative
//!   not !              highest
//! ```
//! An expression is a value; it holds if the value is true. It is false for an element that has no
//! value for one of its fields, even in a part that has no influence. Parsing: O(bytes).
//! Evaluation: O(expression + fields × attribute bytes), without allocation up to eight operands at
//! once.

use smallvec::SmallVec;

use super::attributes::{Literal, Text, Value, is_space, number_of};
use crate::error::{CommandError, quotable};

/// The length in bytes of the longest accepted filter expression.
pub const EXPRESSION_LEN_MAX: usize = 1 << 20;

/// A parsed filter expression of VSIM, with its own copies of strings and field names.
#[derive(Debug)]
pub struct Filter {
    /// The expression in postfix order. Every operator has its operands, and one value is left.
    steps: Vec<Step>,
    /// The elements of all lists in the filter expression.
    literals: Vec<Literal>,
}

/// A step in the evaluation of a filter expression: it pushes a value, or replaces the top values
/// by a result.
#[derive(Debug)]
enum Step {
    Number(f64),
    Text(Box<[u8]>),
    Field(Box<[u8]>),
    /// A list of the expression, as a range in [`Filter::literals`].
    List(usize, usize),
    Apply(Operator),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Not,
}

/// A word of a filter expression that is not an operand: an operator or a bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Open,
    Close,
    Apply(Operator),
}

/// The operators and brackets of filter expressions. A longer word precedes the words with which it
/// begins: `**` precedes `*`.
const WORDS: [(&[u8], Word); 21] = {
    use Operator::*;
    [
        (b"(", Word::Open),
        (b")", Word::Close),
        (b"not", Word::Apply(Not)),
        (b"and", Word::Apply(And)),
        (b"in", Word::Apply(In)),
        (b"or", Word::Apply(Or)),
        (b"&&", Word::Apply(And)),
        (b"||", Word::Apply(Or)),
        (b"==", Word::Apply(Equal)),
        (b"!=", Word::Apply(NotEqual)),
        (b">=", Word::Apply(GreaterOrEqual)),
        (b"<=", Word::Apply(LessOrEqual)),
        (b"**", Word::Apply(Power)),
        (b"!", Word::Apply(Not)),
        (b">", Word::Apply(Greater)),
        (b"<", Word::Apply(Less)),
        (b"*", Word::Apply(Multiply)),
        (b"/", Word::Apply(Divide)),
        (b"%", Word::Apply(Remainder)),
        (b"+", Word::Apply(Add)),
        (b"-", Word::Apply(Subtract)),
    ]
};

impl Operator {
    /// Returns the precedence: an operator with a higher one takes its operands before those with
    /// lower ones.
    fn precedence(self) -> u8 {
        match self {
            Operator::Or => 0,
            Operator::And => 1,
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual
            | Operator::In => 2,
            Operator::Add | Operator::Subtract => 3,
            Operator::Multiply | Operator::Divide | Operator::Remainder => 4,
            Operator::Power => 5,
            Operator::Not => 6,
        }
    }

    /// Returns true if this operator, on the stack, takes its operands before `next` does.
    fn precedes(self, next: Operator) -> bool {
        let binds_right = next == Operator::Power;
        self.precedence() > next.precedence() || (self.precedence() == next.precedence() && !binds_right)
    }

    fn operand_count(self) -> usize {
        if self == Operator::Not { 1 } else { 2 }
    }

    /// Computes the result of the operator for the two operands.
    fn of(self, a: Value<'_>, b: Value<'_>) -> f64 {
        let (x, y) = (|| a.number(), || b.number());
        let holds = match self {
            Operator::Or => a.is_true() || b.is_true(),
            Operator::And => a.is_true() && b.is_true(),
            Operator::Equal => a.equals(b),
            Operator::NotEqual => !a.equals(b),
            Operator::Less => x() < y(),
            Operator::LessOrEqual => x() <= y(),
            Operator::Greater => x() > y(),
            Operator::GreaterOrEqual => x() >= y(),
            Operator::In => a.is_in(b),
            Operator::Add => return x() + y(),
            Operator::Subtract => return x() - y(),
            Operator::Multiply => return x() * y(),
            Operator::Divide => return x() / y(),
            Operator::Remainder => return x() % y(),
            Operator::Power => return x().powf(y()),
            Operator::Not => !b.is_true(),
        };
        f64::from(u8::from(holds))
    }
}

impl Filter {
    /// Parses a filter expression, which ends at its first NUL. O(bytes).
    ///
    /// # Errors
    /// If the expression has a syntax error or is longer than [`EXPRESSION_LEN_MAX`].
    pub fn parse(expression: &[u8]) -> Result<Self, CommandError> {
        let expression = quotable(expression);
        if expression.len() > EXPRESSION_LEN_MAX {
            return Err(CommandError::Line("ERR FILTER expression is too long"));
        }
        let filter = Filter { steps: Vec::new(), literals: Vec::new() };
        let mut parser = Parser {
            filter,
            waiting: Vec::new(),
            values: 0,
            text: expression,
            at: 0,
            follows_operand: false,
        };
        let from = match parser.run() {
            Ok(()) => return Ok(parser.filter),
            // As in Redis, the place of the error is known only if it is inside the text.
            Err(Defect::AtToken) if parser.at < expression.len() => parser.at,
            Err(Defect::AtToken | Defect::Operands) => 0,
        };
        Err(CommandError::quoting("ERR syntax error in FILTER expression near: ", &expression[from..], ""))
    }

    /// Returns the number of operands and operators of the filter expression. O(1).
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns true if the filter expression holds for an element with these attributes.
    pub fn holds(&self, attributes: &[u8]) -> bool {
        let mut stack = SmallVec::<[Value<'_>; 8]>::new();
        for step in &self.steps {
            let value = match step {
                Step::Number(number) => Value::Number(*number),
                Step::Text(raw) => Value::Text(Text::plain(raw)),
                Step::Field(name) => match Value::of_field(attributes, name) {
                    Some(value) => value,
                    None => return false,
                },
                Step::List(start, end) => Value::List(&self.literals[*start..*end]),
                Step::Apply(operator) => {
                    let b = stack.pop().expect("the parser counted the operands");
                    let a = match operator.operand_count() {
                        1 => Value::Null,
                        _ => stack.pop().expect("the parser counted the operands"),
                    };
                    Value::Number(operator.of(a, b))
                }
            };
            stack.push(value);
        }
        stack.pop().is_some_and(Value::is_true)
    }
}

/// The kind of a syntax error in a filter expression.
enum Defect {
    /// No token begins, or one is damaged, at the parser's position.
    AtToken,
    /// An operator lacks operands, a bracket lacks its counterpart, or the number of values left is
    /// not one.
    Operands,
}

/// The state of the parser of a filter expression ([`Filter::parse`]).
struct Parser<'e> {
    filter: Filter,
    /// The operators and opening brackets whose operands are not complete, innermost last.
    waiting: Vec<Word>,
    /// The number of values that the parsed steps of the expression leave when they are evaluated.
    values: usize,
    text: &'e [u8],
    at: usize,
    /// True if the last token of the expression is an operand or closes brackets.
    follows_operand: bool,
}

impl<'e> Parser<'e> {
    fn run(&mut self) -> Result<(), Defect> {
        // The tokens come first: a damaged one is reported before operators without operands.
        let mut tokens = Vec::new();
        loop {
            self.skip_space();
            if self.at == self.text.len() {
                break;
            }
            let token = self.token()?;
            self.follows_operand = !matches!(token, Token::Word(Word::Open | Word::Apply(_)));
            tokens.push(token);
        }
        tokens.into_iter().try_for_each(|token| self.place(token))?;
        while let Some(word) = self.waiting.pop() {
            self.emit(word)?;
        }
        if self.values == 1 { Ok(()) } else { Err(Defect::Operands) }
    }

    /// Adds a token of the filter expression to the steps, or to the operators that wait for
    /// operands.
    fn place(&mut self, token: Token) -> Result<(), Defect> {
        match token {
            Token::Operand(step) => {
                self.filter.steps.push(step);
                self.values += 1;
            }
            Token::Null => {}
            Token::Word(Word::Open) => self.waiting.push(Word::Open),
            Token::Word(Word::Close) => loop {
                match self.waiting.pop().ok_or(Defect::Operands)? {
                    Word::Open => break,
                    word => self.emit(word)?,
                }
            },
            Token::Word(Word::Apply(next)) => {
                while let Some(&Word::Apply(operator)) = self.waiting.last()
                    && operator.precedes(next)
                {
                    self.waiting.pop();
                    self.emit(Word::Apply(operator))?;
                }
                self.waiting.push(Word::Apply(next));
            }
        }
        Ok(())
    }

    /// Adds the step of an operator to the parsed filter expression.
    fn emit(&mut self, word: Word) -> Result<(), Defect> {
        let Word::Apply(operator) = word else { return Err(Defect::Operands) };
        let left = self.values.checked_sub(operator.operand_count()).ok_or(Defect::Operands)?;
        self.values = left + 1;
        self.filter.steps.push(Step::Apply(operator));
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.run_of(is_space);
    }

    /// Returns the next bytes of the expression that are of a kind, and skips them.
    fn run_of(&mut self, is_of_kind: impl Fn(u8) -> bool) -> &'e [u8] {
        let rest = &self.text[self.at..];
        let len = rest.iter().position(|&byte| !is_of_kind(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Parses the next token of the filter expression. A minus before a digit belongs to the
    /// number, except after an operand.
    fn token(&mut self) -> Result<Token, Defect> {
        let next = self.text.get(self.at + 1).copied();
        match self.text[self.at] {
            b'0'..=b'9' => self.number().map(|number| Token::Operand(Step::Number(number))),
            b'-' if !self.follows_operand && next.is_some_and(|byte| byte.is_ascii_digit()) => {
                self.number().map(|number| Token::Operand(Step::Number(number)))
            }
            b'"' | b'\'' => self.string().map(|text| Token::Operand(Step::Text(text.into()))),
            b'.' if next.is_none_or(is_of_field) => {
                self.at += 1;
                Ok(Token::Operand(Step::Field(self.run_of(is_of_field).into())))
            }
            b'[' => self.list(),
            _ => self.word(),
        }
    }

    fn number(&mut self) -> Result<f64, Defect> {
        let start = self.at;
        self.at += 1;
        self.run_of(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E'));
        number_of(&self.text[start..self.at]).ok_or(Defect::AtToken)
    }

    /// Parses a string of the filter expression. A backslash protects the quote after it, but stays
    /// in the string.
    fn string(&mut self) -> Result<&'e [u8], Defect> {
        let quote = self.text[self.at];
        self.at += 1;
        let start = self.at;
        while let Some(byte) = self.peek() {
            if byte == quote {
                self.at += 1;
                return Ok(&self.text[start..self.at - 1]);
            }
            self.at += if byte == b'\\' { 2 } else { 1 };
        }
        Err(Defect::AtToken)
    }

    fn list(&mut self) -> Result<Token, Defect> {
        self.at += 1;
        let start = self.filter.literals.len();
        self.skip_space();
        while self.peek() != Some(b']') {
            let literal = match self.peek() {
                Some(b'0'..=b'9' | b'-') => Literal::Number(self.number()?),
                Some(b'"' | b'\'') => Literal::Text(self.string()?.into()),
                _ => return Err(Defect::AtToken),
            };
            self.filter.literals.push(literal);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {}
                _ => return Err(Defect::AtToken),
            }
            self.skip_space();
        }
        self.at += 1;
        Ok(Token::Operand(Step::List(start, self.filter.literals.len())))
    }

    fn word(&mut self) -> Result<Token, Defect> {
        let rest = &self.text[self.at..];
        if let Some((text, word)) = WORDS.iter().find(|(text, _)| rest.starts_with(text)) {
            self.at += text.len();
            return Ok(Token::Word(*word));
        }
        match self.run_of(|byte| byte.is_ascii_alphabetic() || b"+-*%/!()<>=|&".contains(&byte)) {
            b"null" => Ok(Token::Null),
            _ => Err(Defect::AtToken),
        }
    }
}

/// A token of a filter expression: an operand, an operator or a bracket.
enum Token {
    /// An operand: a field, a number, a string or a list.
    Operand(Step),
    /// The word `null`. As in Redis, it is no value: an operator lacks this operand.
    Null,
    /// A token that is an operator or a bracket.
    Word(Word),
}

fn is_of_field(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests;
