"""The daily report: analyses to Parquet, and one HTML page that needs nothing but itself.

build.py runs the analyses, findings.py holds what the page shows, page.py lays it out,
charts.py draws; report.css, report.js and map.js are put into the page as they are.
"""
