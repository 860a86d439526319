# Jobs of Sidekiq whose processes and server are killed; see crashes.rs of xtask. Sidekiq's free edition has no
# acknowledgements: the jobs in the hands of a killed process are lost, and those that the server was sending when it
# was killed.
#
#     ruby sidekiq_crashes.rb send PORT LEDGER JOBS
#     ruby sidekiq_crashes.rb work PORT LEDGER        (becomes Sidekiq's own command line, which loads this file)

require "sidekiq"

THREADS = 2
TASK, PORT, LEDGER = (ENV["CRASHES"] || ARGV[0, 3].join(" ")).split(" ", 3)
URL = "redis://127.0.0.1:#{PORT}/0"

Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)
Sidekiq.configure_client { |config| config.redis = {url: URL, reconnect_attempts: 0} }
Sidekiq.configure_server { |config| config.redis = {url: URL} }

def now_ms
  Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond)
end

# A little work, that is noted in the ledger by one write.
class Work
  include Sidekiq::Worker

  def perform(job, sent_ms)
    sleep(job % 5 / 1000.0)
    File.open(LEDGER, File::WRONLY | File::APPEND) { |file| file.syswrite("#{job} #{sent_ms} #{now_ms}\n") }
  end
end

def send_jobs(jobs)
  jobs.times do |job|
    sent_ms = now_ms
    begin
      Work.perform_async(job, sent_ms)
    rescue StandardError
      sleep(0.02)
      retry
    end
  end
end

if $PROGRAM_NAME == __FILE__
  if TASK == "send"
    send_jobs(ARGV[3].to_i)
  else
    exec({"CRASHES" => "work #{PORT} #{LEDGER}"}, "sidekiq", "-r", File.expand_path(__FILE__), "-c", THREADS.to_s)
  end
end
