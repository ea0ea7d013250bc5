"""A server of reports, for as long as a block runs."""

import threading
from contextlib import contextmanager

from tremula.vision.page_data.fetch import PageData
from tremula.vision.report.reader import open_report
from tremula.vision.serve.server import PageServer


@contextmanager
def serving(*reports, **options):
    """Serve these report files until the block ends."""
    readers = [open_report(report) for report in reports]
    server = PageServer(PageData(readers), **options)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for reader in readers:
            reader.close()
