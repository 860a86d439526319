//! Active expiry: it does not disturb transactions, and it works more while many keys have expired.

use std::time::{Duration, Instant};

use testkit::Value;

use crate::support::{connect, info, on_each_back_end};

/// Number of keys that expire: work for many rounds of the housekeeper in a test build.
const KEYS: usize = 200_000;

/// Time in seconds that is far longer than the interval of the housekeeper's rounds.
const COMES_BY_S: &str = "0.4";
/// Time after which a wait in a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_transaction_that_runs_alone_sees_no_key_expire() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < PATIENCE, "the key is never there when the transaction begins");
            // A transaction with a command without keys has exclusive access to the keyspace.
            let requests = [
                vec!["SET", "k", "v", "PX", "100"],
                vec!["MULTI"],
                vec!["EXISTS", "k"],
                vec!["DEBUG", "SLEEP", COMES_BY_S],
                vec!["EXISTS", "k"],
                vec!["EXEC"],
            ];
            let replies = client.pipeline(&requests).expect("the server answers");
            let Some(Value::Array(replies)) = replies.last() else { panic!("EXEC replies with an array") };
            assert_eq!(replies[0], replies[2], "the key expires between two commands of a transaction");
            if replies[0] == Value::Integer(1) {
                break;
            }
        }
    });
}

/// Checks the share of time for which active expiry works while many keys have expired. The number
/// of removed keys is not checked, because it depends on the machine.
#[test]
fn expiry_takes_a_larger_share_of_a_core_while_much_is_overdue() {
    on_each_back_end(|server| {
        let mut client = connect(server);
        client.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        for first in (0..KEYS).step_by(1000) {
            let sets: Vec<Vec<String>> = (first..first + 1000)
                .map(|key| ["SET", &format!("key:{key}"), "v", "PX", "1"].map(str::to_owned).to_vec())
                .collect();
            client.pipeline(&sets).expect("the server answers");
        }
        let (ms_before, since) = (info(&mut client, "expire_cycle_cpu_milliseconds"), Instant::now());
        client.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
        while client.command(&["DBSIZE"]) != Value::Integer(0) {
            assert!(since.elapsed() < PATIENCE, "the keys are not removed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let took_ms = since.elapsed().as_millis() as u64;
        let worked_ms = info(&mut client, "expire_cycle_cpu_milliseconds") - ms_before;
        // Up to one round passes before it begins, and its smallest share is 25 %.
        let rounds_ms = took_ms.saturating_sub(100);
        assert!(worked_ms * 8 >= rounds_ms, "{worked_ms} of {took_ms} ms");
    });
}
