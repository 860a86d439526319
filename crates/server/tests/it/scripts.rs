//! Every script of tests/cmd, with RESP2 and RESP3 and with each I/O backend.

use std::path::Path;

use testkit::script;

use crate::support;

#[test]
fn every_script_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cmd");
    support::on_each_back_end(|server| {
        let report = script::run_all(&dir, &|protocol| support::speaking(server, protocol));
        assert!(report.failures.is_empty(), "on {:?}:\n{report}", server.backend());
    });
}
