-- Tables of a service's file, as the head of store.py describes them.
CREATE TABLE IF NOT EXISTS commits(
    number INTEGER PRIMARY KEY, last INTEGER NOT NULL, time REAL NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS commits_by_record ON commits(last);
CREATE TABLE IF NOT EXISTS intents(
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL,
    placed TEXT NOT NULL, by TEXT NOT NULL, state TEXT NOT NULL, decided REAL NOT NULL,
    accepted REAL, started REAL, ended REAL, detail TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS intents_of_job ON intents(job, attempt);
CREATE INDEX IF NOT EXISTS intents_by_state ON intents(state);
CREATE TABLE IF NOT EXISTS history(
    seq INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, job_type TEXT NOT NULL, user TEXT NOT NULL,
    submitted REAL NOT NULL, first REAL, started REAL, ended REAL NOT NULL, tasks INTEGER NOT NULL,
    outcome TEXT NOT NULL, by TEXT NOT NULL, rate REAL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_by_end ON history(ended);
CREATE TABLE IF NOT EXISTS known(job TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS requests(
    id INTEGER PRIMARY KEY, line INTEGER NOT NULL, what TEXT NOT NULL, value TEXT NOT NULL,
    state TEXT NOT NULL, asked REAL NOT NULL, told REAL, detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS requests_by_state ON requests(state);
CREATE TABLE IF NOT EXISTS views(name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS about(name TEXT PRIMARY KEY, value TEXT NOT NULL);
