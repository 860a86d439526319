# Runs jobs through Sidekiq: lists, BRPOP, and a script that takes due jobs from sorted sets.
#
# Processes are killed at random. Sidekiq's free edition has no acknowledgements: the jobs in the hands of a killed
# process are gone, and so is the one that its poller moved. Each job is done once at most, and what was lost is
# sent again here. Some fail, and are tried again.
#
#     ruby sidekiq_jobs.rb PORT DATABASE SEED    (processes are started by Sidekiq's own command line)

require "sidekiq"
require "sidekiq/api"

JOBS = 1_000
PROCESSES = 2
THREADS = 4
KILLS = 4
SECONDS_MAX = 120
# Those delayed become ready within so many seconds.
DELAY_SECONDS_MAX = 3.0

URL = ENV["SIDEKIQ_JOBS"] || "redis://127.0.0.1:#{ARGV[0]}/#{ARGV[1]}"

Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)
Sidekiq.configure_client { |config| config.redis = {url: URL} }
Sidekiq.configure_server do |config|
  config.redis = {url: URL}
  config.options[:poll_interval_average] = 0.3
  # Ten seconds, otherwise.
  Sidekiq::Scheduled::Poller.send(:remove_const, :INITIAL_WAIT)
  Sidekiq::Scheduled::Poller.const_set(:INITIAL_WAIT, 0)
end

# A little work, that is noted.
class Square
  include Sidekiq::Worker
  sidekiq_options retry: 5

  def perform(number)
    raise "on purpose" if number % 100 == 0 && Sidekiq.redis { |redis| redis.sadd("failed", [number]) } == 1

    sleep(number % 5 / 1000.0)
    Sidekiq.redis { |redis| redis.hincrby("ledger", number, 1) }
  end
end

def ledger
  Sidekiq.redis { |redis| redis.hgetall("ledger") }
end

def until_true(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS_MAX
  until yield
    raise "not within #{SECONDS_MAX} seconds: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep(0.02)
  end
end

def start
  command = ["sidekiq", "-r", File.expand_path(__FILE__), "-c", THREADS.to_s]
  spawn({"SIDEKIQ_JOBS" => URL}, *command, in: File::NULL, out: File::NULL, err: File::NULL)
end

def kill(pid)
  Process.kill(:KILL, pid)
  _, status = Process.wait2(pid)
  raise "a process had ended with #{status}" unless status.termsig == Signal.list["KILL"]
end

def send_jobs(chance)
  JOBS.times do |number|
    number % 3 == 0 ? Square.perform_in(chance.rand * DELAY_SECONDS_MAX, number) : Square.perform_async(number)
  end
end

# No job waits, and none was done for a moment.
def idle?
  Sidekiq::RetrySet.new.retry_all
  done = ledger.size
  sleep(0.3)
  Sidekiq::Queue.new.size + Sidekiq::ScheduledSet.new.size + Sidekiq::RetrySet.new.size == 0 && ledger.size == done
end

def lost
  (0...JOBS).map(&:to_s) - ledger.keys
end

def run(chance)
  pids = Array.new(PROCESSES) { start }
  send_jobs(chance)
  Array.new(KILLS) { chance.rand(JOBS / 10...JOBS * 6 / 10) }.sort.each do |moment|
    until_true("#{moment} jobs") { ledger.size >= moment }
    kill(pids.delete_at(chance.rand(PROCESSES)))
    pids.push(start)
  end
  until_true("no job waits") { idle? }
  again = lost
  raise "#{again.size} jobs are gone" if again.size > KILLS * (THREADS + 2)

  again.each { |number| Square.perform_async(number.to_i) }
  until_true("all jobs") { idle? && lost.empty? }
  again.size
ensure
  pids.each { |pid| kill(pid) }
end

if $PROGRAM_NAME == __FILE__
  Sidekiq.redis(&:flushdb)
  again = run(Random.new(ARGV[2].to_i))
  doubled = ledger.values.sum(&:to_i) - JOBS
  raise "#{doubled} jobs were done again" unless doubled == 0

  puts "sidekiq #{Sidekiq::VERSION}: #{JOBS} jobs done, #{again} sent again after #{KILLS} kills"
  Sidekiq.redis(&:flushdb)
end
