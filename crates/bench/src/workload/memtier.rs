//! memtier_benchmark's mix of SET and GET.

use super::distribution::{KeyPattern, Keys};
use super::value::Values;
use super::{Template, TemplateOptions, Weighted, Workload};
use crate::BenchError;

/// A mix of SET and GET over numbered keys, as memtier_benchmark sends it.
#[derive(Clone, Debug)]
pub struct Memtier {
    /// The ratio of SET to GET: (1, 15) is 1:15.
    pub ratio: (u32, u32),
    /// The prefix of all keys of the mix; the key's number follows it.
    pub prefix: String,
    /// The numbers of the keys that SET writes.
    pub set_keys: Keys,
    /// The numbers of the keys that GET reads.
    pub get_keys: Keys,
    /// The values that the SETs of the mix write.
    pub values: Values,
}

impl Workload {
    /// Creates the workload of `mix`. A command with share 0 is not sent. Returns an error if both
    /// shares are 0.
    pub fn memtier(mix: &Memtier) -> Result<Workload, BenchError> {
        let (sets, gets) = mix.ratio;
        let mut requests = Vec::new();
        for (weight, line, keys) in
            [(sets, "SET __key__ __data__", &mix.set_keys), (gets, "GET __key__", &mix.get_keys)]
        {
            let options = TemplateOptions {
                keys: Some((mix.prefix.clone(), keys.clone())),
                data: Some(mix.values.clone()),
                ..TemplateOptions::default()
            };
            if weight > 0 {
                let template = Template::parse(line, &options, &mut 0)?;
                requests.push(Weighted { weight, template });
            }
        }
        if requests.is_empty() {
            return Err(BenchError::Usage(format!("the ratio {sets}:{gets} leaves nothing to send")));
        }
        let counters = [&mix.set_keys, &mix.get_keys].map(|keys| match keys.pattern {
            KeyPattern::Sequential(counter) => counter + 1,
            _ => 0,
        });
        let sequences = counters.into_iter().max().unwrap_or(0);
        let mut workload = Workload::of(&format!("SET:GET {sets}:{gets}"), requests, sequences);
        workload.values = Some(mix.values.clone());
        workload.value_bytes = mix.values.sizes().to_string();
        Ok(workload)
    }

    /// Parses a ratio of SET to GET, such as `1:15`. Returns an error if a share is above 1,000,000
    /// or the text is malformed.
    pub fn parse_ratio(text: &str) -> Result<(u32, u32), BenchError> {
        let parts =
            text.split_once(':').and_then(|(sets, gets)| Some((sets.parse().ok()?, gets.parse().ok()?)));
        let parts = parts.filter(|&(sets, gets): &(u32, u32)| sets <= 1_000_000 && gets <= 1_000_000);
        parts.ok_or_else(|| BenchError::Usage(format!("{text:?} is not a ratio such as 1:15")))
    }
}
