//! Runs the simulator: `cargo xtask simulate` builds it with `--cfg shuttle` and starts it.
#![forbid(unsafe_code)]

#[cfg(not(shuttle))]
fn main() {
    eprintln!("this is built without the simulator: run `cargo xtask simulate`");
    std::process::exit(2);
}

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    simulation::main()
}

#[cfg(shuttle)]
mod simulation {
    use std::process::ExitCode;
    use std::time::{Duration, Instant};

    use clap::Parser;
    use testkit::Rng;
    use testkit::simulator::scenario::Scenario;
    use testkit::simulator::shrink::{Failure, shrink};
    use testkit::simulator::{chain, run};

    /// Runs engines with simulated threads, clients, links, clock and disk until a check fails.
    #[derive(Parser)]
    struct Arguments {
        /// Ends after this many seconds without a failure.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The seed from which all scenarios and schedules follow.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Ends after this many operations (requests) of simulated clients.
        #[arg(long)]
        operations: Option<u64>,
        /// Runs only the scenario that follows from this seed.
        #[arg(long)]
        scenario: Option<u64>,
        /// Prints a failing scenario without shrinking it.
        #[arg(long)]
        no_shrinking: bool,
        /// Runs only scenarios of replication, in which several engines form a chain of primary and
        /// replicas.
        #[arg(long)]
        chain: bool,
        /// Prints each scenario as it begins.
        #[arg(long)]
        verbose: bool,
    }

    /// The allocator of the program. It counts the memory in use, which eviction needs.
    #[global_allocator]
    static ALLOCATOR: structures::alloc::CountingAllocator = structures::alloc::CountingAllocator;

    /// The approximate numbers of client operations, one of which each scenario has.
    const OPERATIONS: &[usize] = &[30, 100, 250, 500];

    /// The interval of scenarios with several engines: one of this many.
    const CHAIN_EVERY: u64 = 8;

    pub fn main() -> ExitCode {
        let arguments = Arguments::parse();
        // Findings are printed at the end. A panic of a simulated thread is a finding.
        std::panic::set_hook(Box::new(|_| ()));
        let mut seeds = Rng::new(arguments.seed);
        let begun = Instant::now();
        let (mut runs, mut operations) = (0_u64, 0_u64);
        let limit = Duration::from_secs(arguments.seconds);
        while begun.elapsed() < limit && arguments.operations.is_none_or(|max| operations < max) {
            let seed = arguments.scenario.unwrap_or_else(|| seeds.next_u64() >> 16);
            if seed.is_multiple_of(CHAIN_EVERY) || arguments.chain {
                let count = *Rng::new(seed).pick(OPERATIONS);
                let findings = chain::run(seed, count);
                runs += 1;
                operations += count as u64;
                if !findings.is_empty() {
                    println!("scenario {seed} fails, after {operations} operations in {runs} scenarios:");
                    findings.iter().for_each(|finding| println!("- {finding}"));
                    return ExitCode::FAILURE;
                }
                if arguments.scenario.is_some() {
                    break;
                }
                continue;
            }
            let scenario = Scenario::new(seed, *Rng::new(seed).pick(OPERATIONS));
            if arguments.verbose {
                eprintln!("scenario {seed}: {:?}, {} operations", scenario.kind, scenario.operations());
            }
            let findings = run(&scenario);
            runs += 1;
            operations += scenario.operations() as u64;
            if !findings.is_empty() {
                println!("scenario {seed} fails, after {operations} operations in {runs} scenarios:");
                let failure = Failure { scenario, findings };
                show_findings(&failure);
                if !arguments.no_shrinking {
                    let smallest = shrink(failure);
                    println!("\nThe smallest scenario found that fails:\n{}", smallest.scenario);
                    show_findings(&smallest);
                }
                return ExitCode::FAILURE;
            }
            if arguments.scenario.is_some() {
                break;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let rate = operations as f64 / seconds;
        println!(
            "{operations} operations in {runs} scenarios, {seconds:.1} s: {rate:.0} operations per second"
        );
        ExitCode::SUCCESS
    }

    fn show_findings(failure: &Failure) {
        failure.findings.iter().for_each(|finding| println!("- {finding}"));
    }
}
