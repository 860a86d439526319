//! Benchmark runs, grouped by the distance between the machine's cores during the run.
//!
//! The hypervisor moves virtual cores: at times they share one cache, at times they are on
//! different chips ([`core_distance`]). This changes the cost of a request more than the choice of
//! the server does. Runs can therefore be compared only at the same distance.

use std::fmt;

use super::core_distance;
use super::table::Figures;

/// The ratio that separates far from near cores. Cores are far from each other if a cache line's
/// round trip takes more than this many times the shortest one seen.
pub const FAR_TIMES: f64 = 3.0;

/// The distance between the cores of the machine during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    Near,
    Far,
}

impl Distance {
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Near => "cores near",
            Self::Far => "cores far",
        })
    }
}

/// The figures of a run, with the round trip times between the cores right before and right after
/// it.
pub struct Run {
    trips_ns: [f64; 2],
    figures: Figures,
}

/// The choice whether to measure the distance of the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistanceCheck {
    /// The distance is measured before and after each run.
    Always,
    /// The distance is not measured: all runs count as near.
    Never,
}

/// The benchmark runs of several servers on one test.
pub struct Runs {
    looks: DistanceCheck,
    by_server: Vec<Vec<Run>>,
    least_trip_ns: f64,
}

impl Runs {
    /// Creates an empty list of runs for each of `servers` servers. `looks` says if their core
    /// distance is measured.
    pub fn of(servers: usize, looks: DistanceCheck) -> Self {
        Self { looks, by_server: (0..servers).map(|_| Vec::new()).collect(), least_trip_ns: f64::INFINITY }
    }

    /// Runs the benchmark `measure` once and adds its figures to the runs of server number
    /// `server`. Returns the error of `measure` if it fails.
    pub fn add<E>(&mut self, server: usize, measure: impl FnOnce() -> Result<Figures, E>) -> Result<(), E> {
        // If the distance cannot be measured, for example with a single core, all runs count as
        // near.
        let trip_ns = |looks: DistanceCheck| match looks {
            DistanceCheck::Always => core_distance::round_trip_ns().unwrap_or(1.0),
            DistanceCheck::Never => 1.0,
        };
        let before_ns = trip_ns(self.looks);
        let figures = measure()?;
        self.push(server, Run { trips_ns: [before_ns, trip_ns(self.looks)], figures });
        Ok(())
    }

    fn push(&mut self, server: usize, run: Run) {
        self.least_trip_ns = run.trips_ns.into_iter().fold(self.least_trip_ns, f64::min);
        self.by_server[server].push(run);
    }

    /// Returns the shortest round trip between the cores seen in these runs, in nanoseconds.
    pub fn least_trip_ns(&self) -> f64 {
        self.least_trip_ns
    }

    /// Returns the distance of the cores in a run, or `None` if it changed during the run.
    /// `least_trip_ns` is the shortest round trip of the machine's cores, in nanoseconds.
    fn distance(run: &Run, least_trip_ns: f64) -> Option<Distance> {
        let far = run.trips_ns.map(|ns| ns > FAR_TIMES * least_trip_ns);
        match far {
            [false, false] => Some(Distance::Near),
            [true, true] => Some(Distance::Far),
            _ => None,
        }
    }

    /// Returns the figures of each server's runs at one distance. `least_trip_ns` is the shortest
    /// round trip of the machine's cores, in nanoseconds.
    pub fn at(&self, distance: Distance, least_trip_ns: f64) -> Vec<Vec<Figures>> {
        let at = |run: &&Run| Self::distance(run, least_trip_ns) == Some(distance);
        self.by_server.iter().map(|runs| runs.iter().filter(at).map(|run| run.figures).collect()).collect()
    }

    /// Returns true if, at some distance of the cores, each server has at least `count` runs.
    pub fn are_enough(&self, count: usize) -> bool {
        let at = |distance: &Distance| self.at(*distance, self.least_trip_ns);
        Distance::ALL.iter().any(|distance| at(distance).iter().all(|runs| runs.len() >= count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(before_ns: f64, after_ns: f64) -> Run {
        let csv = "\"GET\",\"1000.00\",\"0.5\",\"0.1\",\"0.4\",\"0.6\",\"0.9\",\"1.2\"";
        Run { trips_ns: [before_ns, after_ns], figures: Figures::parse(csv, 1.0).expect("a row") }
    }

    #[test]
    fn runs_are_told_apart_by_their_distance() {
        let mut runs = Runs::of(2, DistanceCheck::Always);
        for run in [run(90.0, 410.0), run(400.0, 405.0), run(120.0, 80.0)] {
            runs.push(0, run);
        }
        assert!(!runs.are_enough(1), "the other server has none");
        runs.push(1, run(95.0, 99.0));
        assert!(runs.are_enough(1) && !runs.are_enough(2));
        let counts =
            |distance| runs.at(distance, runs.least_trip_ns()).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((counts(Distance::Near), counts(Distance::Far)), (vec![1, 1], vec![1, 0]));
        assert_eq!(runs.at(Distance::Far, 20.0).iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    }
}
