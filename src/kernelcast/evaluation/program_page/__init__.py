"""One program, or two side by side, as a page: what a model sees of it, for a person.

row = choosing.find_program(programs, Wanted(workload="matmul"))
html = page.render_page(page.page_data(programs, description, [row]))
"""
